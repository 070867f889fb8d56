"""`fairgate queue`: options and help; run.py implements it."""

from dataclasses import dataclass

import click

from webhook.cli.options import Layout, PolicyOptions, command, layout_option, of, only_namespaces_option, option

_EXAMPLES = """\b
Examples:
  kubectl fairgate queue
  kubectl fairgate queue --team vision
  fairgate queue --policy policies --world world.yaml
  fairgate queue --policy policies -o json > queue.json

\b
Exit status: 0 shown, 2 the policy or the world cannot be read, or there is no such team."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options."""

    namespaces: tuple[str, ...] = of(only_namespaces_option)
    team: str | None = option("--team", metavar="NAME", help="Show the pods of this team only.")
    limit: int = option(
        "--limit",
        type=click.IntRange(min=1),
        default=100,
        metavar="N",
        help="Pods in the table, the first in the queue first; data has all.",
    )
    layout: Layout = of(layout_option)


@command(Options, epilog=_EXAMPLES, short_help="Show which pods are queued, for what, and for how long.")
def queue(options: Options) -> None:
    """Show the pods that are queued with Fairgate's scheduling gate; by default of the cluster.

    Each with its place among all and in its team, what it waits for, who holds most of that, and how long the last
    20 pods of this size in its team were queued, as the leader saw it. Places are those of the fair order
    if each pod starts in its turn: a pod starts earlier if it fits where those ahead of it do not. What earlier
    pods waited is no promise.

    If you may not list all pods, places count those that you may list.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.queue.run import run  # noqa: PLC0415

    run(options)
