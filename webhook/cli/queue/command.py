"""`fairgate queue`: options and help; run.py implements it."""

import sys
from pathlib import Path

import click

from webhook.cli.options import (
    Layout,
    chosen_source,
    history_option,
    layout_option,
    namespaces_option,
    policy_option,
    world_options,
)

_EXAMPLES = """\b
Examples:
  kubectl fairgate queue
  kubectl fairgate queue --team vision
  fairgate queue --policy policies --world world.yaml
  kubectl fairgate queue --history history.db
  fairgate queue --policy policies -o json > queue.json

\b
Exit status: 0 shown, 2 the policy, the world or the history cannot be read, or there is no such team."""


@click.command(epilog=_EXAMPLES, short_help="Show which pods wait in line, for what, and for how long.")
@policy_option
@world_options
@namespaces_option
@click.option("--team", metavar="NAME", help="Show the pods of this team only.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Pods in the table, the first in line first; data has all.",
)
@history_option
@layout_option
def queue(
    *,
    policy: Path | None,
    world: Path | None,
    cluster: bool,
    kubeconfig: Path | None,
    namespaces: tuple[str, ...],
    team: str | None,
    limit: int,
    history: Path | None,
    layout: Layout,
) -> None:
    """Show the pods that wait in line with Fairgate's scheduling gate; by default of the cluster.

    Each with its place among all and in its team, what it waits for, who holds most of that, and when it is likely to
    start. Places are those of the fair order if each pod starts in its turn: a pod that fits into room which those
    ahead of it cannot use starts earlier. The likely start is a range from simulations of the line with the run times
    of earlier pods, or unknown with the reason, and never a promise.

    If you may not list all pods, places count those that you may list.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.queue.run import Options, run  # noqa: PLC0415

    source = chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig)
    sys.exit(run(Options(policy, source, layout, team, limit, namespaces, history)))
