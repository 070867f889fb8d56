"""`fairgate evict`: read the flags, run the evictor, report in one line why it cannot start."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from webhook.cli.addons import of_evict, unread
from webhook.cli.options import (
    cannot_start,
    command,
    end_restored,
    enforce_option,
    lease_option,
    listen_address,
    log_format_option,
    of,
    option,
    policy_folder_option,
    run_service,
    service_kubeconfig_option,
    usual_kubeconfig,
)
from webhook.cluster.api.client import ClusterError, RestoredError
from webhook.cluster.writes.lease import lease_timing
from webhook.core.model.amounts import printable_lines
from webhook.core.model.policy import Enforcement
from webhook.core.reclaim.reclaim_index import STRANDED_SECONDS
from webhook.evictor.addons import MakeEvictorAddon
from webhook.evictor.root import EvictorSettings, run
from webhook.observe.logs import LogFormat
from webhook.policy.documents import PolicyError, PolicyUnreadable
from webhook.server.settings import Address

_EXAMPLES: Final = """\b
Examples:
  fairgate evict --policy policies/default --kubeconfig ~/.kube/config --dry-run
  fairgate evict --policy policies/default --listen :9090

\b
Several replicas may run: one leads, elected by the Lease fairgate-evictor.
Exit status: 0 stopped by a signal, or a dry run ended, 1 etcd was restored from a backup: start it again, 2 cannot
start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    policy: Path = of(policy_folder_option)
    kubeconfig: Path | None = of(service_kubeconfig_option)
    dry_run: bool = option(
        "--dry-run", is_flag=True, help="Print which pods would be evicted for which, or moved, and end; write nothing."
    )
    namespace: str | None = option(
        "--namespace",
        metavar="NAME",
        help="Namespace of the Lease. Default: this pod's, or that of the kubeconfig's context, or default.",
    )
    listen: Address | None = option(
        "--listen",
        callback=listen_address,
        metavar="HOST:PORT",
        help="Address to serve /healthz, /readyz and /metrics on, by plain HTTP. Default: they are not served.",
    )
    lease_seconds: int = of(lease_option)
    repair_after: int = option(
        "--repair-after",
        type=click.IntRange(min=1),
        default=STRANDED_SECONDS,
        metavar="SECONDS",
        help="How long a pod may wait for nodes that cannot take it before it is replaced or reported.",
    )
    log_format: LogFormat = of(log_format_option)
    enforce: Enforcement | None = of(enforce_option)


@command(Options, addons=of_evict(), epilog=_EXAMPLES)
def evict(options: Options, addons: Sequence[MakeEvictorAddon]) -> None:
    """Reclaim borrowed GPUs for waiting guaranteed pods.

    Evicts preemptible pods only if a guaranteed pod of a team within its share cannot be placed, and reserves the freed
    room for that pod. Every plan is logged before it is carried out.
    """
    listen = options.listen
    settings = EvictorSettings(
        policy=options.policy,
        kubeconfig=options.kubeconfig or usual_kubeconfig(),
        namespace=options.namespace,
        listen=None if listen is None else (listen.host, listen.port),
        timing=lease_timing(options.lease_seconds),
        repair_after_seconds=options.repair_after,
        is_dry_run=options.dry_run,
        enforce=options.enforce,
        log_format=options.log_format,
        unread=unread(),
    )
    try:
        run_service(run(settings, addons=addons, show=lambda text: click.echo(printable_lines(text))))
    except PolicyError as exc:
        listed = "\n  ".join(str(problem) for problem in exc.problems)
        cannot_start(f"policy {options.policy} has problems:\n  {listed}")
    except RestoredError as exc:
        end_restored(exc)
    except (PolicyUnreadable, ClusterError) as exc:
        cannot_start(str(exc))
    except OSError as exc:
        cannot_start(exc.strerror or str(exc))
