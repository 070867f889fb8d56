"""`fairgate status`: the options and what they mean; run.py does it."""

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


@click.command(epilog=_EXAMPLES, short_help="Show who has which GPUs, and what would fit now.")
@policy_option
@world_options
@namespaces_option
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often, with --watch.",
)
@click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice(Layout, case_sensitive=False),
    default=Layout.TABLE.value,
    show_default=True,
    help="wide adds GPU models of teams, the pods of each node and whole nodes.",
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
    """Show teams, the GPUs of every node one by one, and the largest job that fits now; of the cluster, by default.

    A GPU that one pod has is the letter of its team: a capital if the pod is guaranteed, small if it borrows. A GPU
    that is shared is a letter and a bar that says how full it is. Which of a node's GPUs a pod has is known for shares
    of their memory only; others are shown in the order of the pods' names.

    Who may not list all pods and nodes gets the sums of all teams, and the pods that may be read.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.status.run import Order, run  # noqa: PLC0415

    source = chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig)
    sys.exit(run(Order(policy, source, layout, interval if watch else None, namespaces)))
