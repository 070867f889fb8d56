"""`fairgate status`: options and help; run.py implements it."""

from dataclasses import dataclass

import click

from webhook.cli.options import Layout, PolicyOptions, command, limit_option, of, only_namespaces_option, option

_EXAMPLES = """\b
Examples:
  kubectl fairgate status
  kubectl fairgate status --watch
  fairgate status --policy policies --world world.yaml -o wide
  fairgate status --policy policies -o json > status.json

\b
Exit status: 0 shown, 130 ended by Ctrl-C, 2 the policy or the world cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options."""

    namespaces: tuple[str, ...] = of(only_namespaces_option)
    watch: bool = option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
    interval: float = option(
        "--interval",
        type=click.FloatRange(min=0.1),
        default=2.0,
        metavar="SECONDS",
        help="Interval of --watch.",
    )
    limit: int | None = of(limit_option)
    layout: Layout = option(
        "-o",
        "--output",
        type=click.Choice(Layout, case_sensitive=False),
        default=Layout.TABLE.value,
        help="wide adds GPU models of teams, the pods of each node and the number of free nodes.",
    )


@command(Options, epilog=_EXAMPLES, short_help="Show who uses which GPUs, and what would fit now.")
def status(options: Options) -> None:
    """Show teams, the GPUs of every node, and the largest job that fits now; by default of the cluster.

    A GPU of one pod is shown as the letter of its team: upper case if the pod is guaranteed, lower case if it borrows.
    A shared GPU is a letter and a bar for its usage. It is known which of a node's GPUs a pod has only for shares of
    GPU memory; other pods are shown in the order of their names.

    If you may not list all pods and nodes, you see the usage of all teams, and the pods that you may list.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.status.run import run  # noqa: PLC0415

    run(options)
