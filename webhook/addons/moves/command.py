"""`fairgate defragment`: options and help; run.py implements it."""

from dataclasses import dataclass

import click

from webhook.cli.options import Layout, PolicyOptions, command, layout_option, of, option

_EXAMPLES = """\b
Examples:
  kubectl fairgate defragment --dry-run
  kubectl fairgate defragment --dry-run --gpus 8
  kubectl fairgate defragment --dry-run --largest
  fairgate defragment --dry-run --policy policies --world world.yaml -o json

\b
Exit status: 0 shown, 2 the policy or the world cannot be read, or not all of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options."""

    is_dry_run: bool = option("--dry-run", is_flag=True, help="Required: the command only shows moves.")
    gpus: int | None = option(
        "--gpus",
        type=click.IntRange(min=1),
        metavar="N",
        help="Seek room for a pod of N GPUs on one node, in place of the pods that wait.",
    )
    is_largest: bool = option(
        "--largest", is_flag=True, help="Seek the moves after which one node has the most GPUs free."
    )
    resource: str = option(
        "--resource",
        default="",
        metavar="NAME",
        help="The GPUs of --gpus and --largest. Default: those of which the cluster has the most pieces.",
    )
    per_workload: int = option(
        "--per-workload",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Move at most so many pods of one controller.",
    )
    layout: Layout = of(layout_option)


@command(Options, epilog=_EXAMPLES, short_help="Show which moves of running pods would make room for those that wait.")
def defragment(options: Options) -> None:
    """Show the moves of running pods that would make room for pods that wait; the command moves nothing.

    For each waiting pod or gang that no node has room for, though enough GPUs are free on several: the cheapest moves,
    by the work that is done again since the last checkpoints, with a place for each pod that has room for it now.
    Preemptible pods may move, and guaranteed ones with annotation fairgate.dev/movable: "true", if a controller
    creates them again. Protected pods, gangs, minimum runtimes and PodDisruptionBudgets are respected.
    """
    if not options.is_dry_run:
        raise click.UsageError(
            "give --dry-run: the moves are shown; policy section defragment has the evictor make them"
        )
    if options.is_largest and options.gpus is not None:
        raise click.UsageError("--gpus and --largest exclude each other")
    if options.resource and not (options.is_largest or options.gpus is not None):
        raise click.UsageError("--resource is for --gpus and --largest")
    from webhook.addons.moves.run import run  # noqa: PLC0415 - slow to import, and --help needs none of it

    run(options)
