"""`fairgate uninstall`: options and help; run.py implements it."""

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from webhook.cli.options import Layout, command, kubeconfig_option, layout_option, of, option

_EXAMPLES = """\b
Examples:
  fairgate uninstall --dry-run
  fairgate uninstall --namespace fairgate-system
  fairgate uninstall --keep-queue --keep-definitions

\b
Exit status: 0 done, 1 something is left or a right is missing, 2 the cluster cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    kubeconfig: Path | None = of(kubeconfig_option)
    is_dry_run: bool = option("--dry-run", is_flag=True, help="Print what would be done, in order, and change nothing.")
    keeps_line: bool = option(
        "--keep-queue",
        is_flag=True,
        help="Leave queued pods with their gate. They do not start until Fairgate is installed again with a policy "
        "that has a queue, or an admin removes the gates. Default: all start as soon as kube-scheduler finds room.",
    )
    keeps_definitions: bool = option(
        "--keep-definitions",
        is_flag=True,
        help="Leave the CustomResourceDefinitions, with ledgers and reports.",
    )
    namespace: str | None = option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of Fairgate's Deployment and Leases. Default: look in all.",
    )
    workload: str | None = option(
        "--deployment",
        metavar="NAME",
        help="The servers' Deployment or StatefulSet in that namespace, to scale to zero. Default: those with the "
        "label app.kubernetes.io/name=fairgate.",
    )
    certs_secret: str | None = option(
        "--certs-secret",
        metavar="NAME",
        help="Also delete this Secret, with the certificates of `fairgate serve --certs-secret`. In --namespace, by "
        "default the kubeconfig's own.",
    )
    pods_per_second: int = option(
        "--pods-per-second",
        type=click.IntRange(min=1),
        default=100,
        metavar="N",
        help="How many queued pods are let go in a second.",
    )
    wait_seconds: int = option(
        "--wait-seconds",
        type=click.IntRange(min=0),
        default=120,
        metavar="SECONDS",
        help="How long to wait for servers and evictors to stop. Those outside of the cluster you stop yourself.",
    )
    layout: Layout = of(layout_option)


@command(Options, epilog=_EXAMPLES, short_help="Take Fairgate out of a cluster; nothing stays stuck.")
def uninstall(options: Options) -> None:
    """Take Fairgate out of a cluster, in an order in which no pod is stuck and no GPU pod is refused at any moment.

    First the webhooks are deleted, then the guards; pods in line are let go, held nodes opened and announced evictions
    withdrawn; servers and evictors are scaled to zero; then definitions, the ClusterRoles of `fairgate manifests` and
    Leases are deleted. No pod is evicted. `helm uninstall` runs this by itself.

    If it is interrupted, run it again: it goes on from there. A missing right is named before anything is changed.
    Kept are labels and decisions of pods, Events, the policy and recorded usage.
    """
    if options.workload and not options.namespace:
        raise click.UsageError("--deployment requires --namespace")
    from webhook.cli.uninstall.run import run  # noqa: PLC0415 - slow to import, and --help needs none of it

    sys.exit(run(options))
