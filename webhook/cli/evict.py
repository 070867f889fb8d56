"""`fairgate evict`: read the flags, run the evictor, report in one line why it cannot start."""

import asyncio
import sys
from pathlib import Path

import click
import uvloop

from webhook.cli.options import enforce_option, lease_option
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.writes.lease import lease_timing
from webhook.core.model.policy import Enforcement
from webhook.core.model.text import printable_lines
from webhook.core.reclaim.stranded import STRANDED_SECONDS
from webhook.evictor.root import Settings, run
from webhook.observe.logs import LogFormat
from webhook.policy.problems import PolicyError, PolicyUnreadable
from webhook.server.settings import parse_address


def _address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    try:
        address = parse_address(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    return address.host, address.port


@click.command(
    epilog="""\b
Examples:
  fairgate evict --policy policies/default --kubeconfig ~/.kube/config --dry-run
  fairgate evict --policy policies/default --listen :9090

\b
Several replicas may run: one leads, elected by the Lease fairgate-evictor.
Exit status: 0 stopped by a signal, 2 cannot start."""
)
@click.option("--policy", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of policy files.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster to watch. Without it: the cluster this pod runs in.",
)
@click.option("--dry-run", is_flag=True, help="Only print which pods would be evicted for which; write nothing.")
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of the Lease. Default: this pod's, or that of the kubeconfig's context, or default.",
)
@click.option(
    "--listen",
    callback=_address,
    metavar="HOST:PORT",
    help="Address to serve /healthz, /readyz and /metrics on, by plain HTTP. Default: they are not served.",
)
@lease_option
@click.option(
    "--repair-after",
    type=click.IntRange(min=1),
    default=STRANDED_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a pod may wait for nodes that cannot take it before it is replaced or reported.",
)
@click.option(
    "--log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    default=LogFormat.JSON.value,
    show_default=True,
    help="Format of the log on standard error: for machines or for people.",
)
@enforce_option
def evict(
    *,
    enforce: str | None,
    policy: Path,
    kubeconfig: Path | None,
    dry_run: bool,
    namespace: str | None,
    listen: tuple[str, int] | None,
    lease_seconds: int,
    repair_after: int,
    log_format: LogFormat,
) -> None:
    """Reclaim borrowed GPUs for waiting guaranteed pods.

    Evicts preemptible pods only if a guaranteed pod of a team within its share cannot be placed, and reserves the freed
    room for that pod. Every plan is logged before it is carried out.
    """
    settings = Settings(
        policy=policy,
        kubeconfig=kubeconfig,
        namespace=namespace,
        listen=listen,
        timing=lease_timing(lease_seconds),
        repair_after_seconds=repair_after,
        is_dry_run=dry_run,
        enforce=None if enforce is None else Enforcement(enforce),
        log_format=log_format,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings, show=_show))
    except PolicyError as exc:
        listed = "\n  ".join(str(problem) for problem in exc.problems)
        _give_up(f"policy {policy} has problems:\n  {listed}")
    except (PolicyUnreadable, ClusterError) as exc:
        _give_up(str(exc))
    except OSError as exc:
        _give_up(exc.strerror or str(exc))


def _show(text: str) -> None:
    click.echo(printable_lines(text))


def _give_up(why: str) -> None:
    click.echo(f"fairgate: cannot start: {why}", err=True)
    sys.exit(2)
