"""`fairgate simulate`: options and help; run.py implements it."""

import sys
from pathlib import Path
from typing import Any

import click

from webhook.cli.options import Layout, chosen_source, path_option, world_options
from webhook.cli.simulate.options import (
    BuyOptions,
    Duration,
    LoadOptions,
    Mix,
    NodeKind,
    NodeKindType,
    Options,
    Outputs,
)
from webhook.simulation.task import Evictions, Refusals, Settings
from webhook.simulation.traces.synthetic import DEFAULT_MIX, Size

_EXAMPLES = """\b
Examples:
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv
  fairgate simulate --world nodes.csv --policy policies.old --policy policies.new --load 0.9 --days 2 --rounds 3
  fairgate simulate --world world.yaml --policy policies --load 0.8 --mix 1:60,4:30,8:10 --report report.html
  fairgate simulate --world world.yaml --policy policies --trace history.db
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv --buy 8xNVIDIA-H100-80GB-HBM3 --within 1h

\b
Exit status: 0 shown, 2 the policy, the world or the trace cannot be read, or an output not be written."""

_percentiles = click.Choice(["50", "90", "99"])


@click.command(epilog=_EXAMPLES, short_help="Show how long a load waits under a policy, in simulated time.")
@click.option(
    "--policy",
    "policies",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    envvar="FAIRGATE_POLICY",
    show_envvar=True,
    help="Folder or file of a policy; repeat it to compare several. Default: the policy in force in the cluster of the "
    "world, or in its history.",
)
@world_options
@path_option(
    "--trace",
    help="Tasks (CSV): Fairgate's own columns, openb's or Helios's; Philly's cluster_job_log; or a history of replay.",
)
@click.option(
    "--load",
    type=click.FloatRange(0.01, 10),
    metavar="PART",
    help="Tasks at random that ask for this part of the GPUs, 0.9 for 90 %; sizes by --trace, else by --mix.",
)
@click.option(
    "--mix",
    type=Mix(),
    default=DEFAULT_MIX,
    show_default=True,
    metavar="SIZES",
    help="With --load: GPUS:WEIGHT or PODSxGPUS:WEIGHT of pods that start together, separated by commas.",
)
@click.option("--days", type=click.FloatRange(0.01, 366), default=7, show_default=True, help="With --load: how long.")
@click.option(
    "--run-time", type=Duration(), default="4h", show_default=True, help="With --load: the mean run time of --mix."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of everything at random.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Rounds with seeds from --seed on; numbers are means with 95 % confidence.",
)
@click.option(
    "--rename-team", "renamed", multiple=True, metavar="OLD=NEW", help="A team of the trace is this team. Repeatable."
)
@click.option("--deal-teams", is_flag=True, help="Deal tasks to teams by guaranteed share, whatever the trace says.")
@click.option("--keep-pods", is_flag=True, help="GPU pods of the world stay; by default the nodes are empty.")
@click.option(
    "--refused",
    type=click.Choice(Refusals, case_sensitive=False),
    default=Refusals.RETRY,
    show_default=True,
    help="Refused for a limit or for room: created again once there is room, or lost.",
)
@click.option(
    "--evicted",
    type=click.Choice(Evictions, case_sensitive=False),
    default=Evictions.RESTART,
    show_default=True,
    help="Evicted pods: created again, or lost.",
)
@click.option(
    "--checkpoint", type=Duration(), default="0s", show_default=True, help="How often work is saved; 0s: never."
)
@click.option("--buy", type=NodeKindType(), metavar="GPUSxMODEL", help="Find how many such nodes make --within true.")
@click.option(
    "--within", type=Duration(), default="1h", show_default=True, help="With --buy: the longest wait allowed."
)
@click.option(
    "--percentile",
    type=_percentiles,
    default="90",
    show_default=True,
    help="With --buy: which percentile of the waits.",
)
@click.option("--of-team", metavar="NAME", help="With --buy: only jobs of this team count. Default: all.")
@click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice([Layout.TABLE, Layout.JSON], case_sensitive=False),
    default=Layout.TABLE.value,
    show_default=True,
)
@path_option("--report", help="Also write plots and tables to one HTML file that loads nothing else.")
@path_option("--csv", metavar="DIR", help="Also write tables and samples as CSV, and plots as SVG, into this folder.")
def simulate(
    *,
    policies: tuple[Path, ...],
    world: Path | None,
    cluster: bool,
    kubeconfig: Path | None,
    **more: Any,  # noqa: ANN401
) -> None:
    """Run a load through the decisions of the webhook, the queue and reclaim in simulated time; nothing is written.

    It says how long jobs wait (50, 90 and 99 percent of them at most so long), how many GPUs are in use, how fragmented
    the free ones are, what is evicted, and how much work that loses. The world is a file of `fairgate world`, a live
    cluster, a table of nodes (CSV: name, gpus, model, cpu, memory, count, or openb's columns), or a history.

    The same inputs and seed give the same result. What is left out: the time in which pods start and end, failures of
    nodes and pods, and autoscalers.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.simulate.run import run  # noqa: PLC0415

    source = chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig)
    sys.exit(run(_options(policies, source, **more)))


def _options(
    policies: tuple[Path, ...],
    source: Any,  # noqa: ANN401 - of a module that is slow to import
    *,
    trace: Path | None,
    load: float | None,
    mix: tuple[Size, ...],
    days: float,
    run_time: int,
    seed: int,
    rounds: int,
    renamed: tuple[str, ...],
    deal_teams: bool,
    keep_pods: bool,
    refused: Refusals,
    evicted: Evictions,
    checkpoint: int,
    buy: NodeKind | None,
    within: int,
    percentile: str,
    of_team: str | None,
    layout: Layout,
    report: Path | None,
    csv: Path | None,
) -> Options:
    if trace is None and load is None:
        raise click.UsageError("give --trace, --load or both")
    if rounds > 1 and load is None:
        raise click.UsageError("--rounds needs --load: a trace is the same in every round")
    if load is not None and not run_time:
        raise click.UsageError("--run-time must be above 0")
    if bad := [each for each in renamed if "=" not in each]:
        raise click.UsageError(f"--rename-team {bad[0]}: expected OLD=NEW")
    return Options(
        policies,
        source,
        trace,
        None if load is None else LoadOptions(load, round(days * 86_400), run_time, mix),
        None if buy is None else BuyOptions(buy, within, int(percentile), of_team),
        Outputs(layout, report, csv),
        Settings(refused, evicted, checkpoint),
        seed,
        rounds,
        keep_pods,
        dict(each.split("=", 1) for each in renamed),
        deal_teams,
    )
