"""`fairgate status`: options and help; run.py implements it."""

import sys
from pathlib import Path

import click

from webhook.cli.options import Layout, chosen_source, namespaces_option, policy_option, world_options

_EXAMPLES = """\b
Examples:
  kubectl fairgate status
  kubectl fairgate status --watch
  fairgate status --policy policies --world world.yaml -o wide
  fairgate status --policy policies -o json > status.json

\b
Exit status: 0 shown, 2 the policy or the world cannot be read."""


@click.command(epilog=_EXAMPLES, short_help="Show who uses which GPUs, and what would fit now.")
@policy_option
@world_options
@namespaces_option
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Interval of --watch.",
)
@click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice(Layout, case_sensitive=False),
    default=Layout.TABLE.value,
    show_default=True,
    help="wide adds GPU models of teams, the pods of each node and the number of free nodes.",
)
def status(
    *,
    policy: Path | None,
    world: Path | None,
    cluster: bool,
    kubeconfig: Path | None,
    namespaces: tuple[str, ...],
    watch: bool,
    interval: float,
    layout: Layout,
) -> None:
    """Show teams, the GPUs of every node, and the largest job that fits now; by default of the cluster.

    A GPU of one pod is shown as the letter of its team: upper case if the pod is guaranteed, lower case if it borrows.
    A shared GPU is a letter and a bar for its usage. It is known which of a node's GPUs a pod has only for shares of
    GPU memory; other pods are shown in the order of their names.

    If you may not list all pods and nodes, you see the usage of all teams, and the pods that you may list.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.status.run import Options, run  # noqa: PLC0415

    source = chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig)
    sys.exit(run(Options(policy, source, layout, interval if watch else None, namespaces)))
