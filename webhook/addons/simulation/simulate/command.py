"""`fairgate simulate`: the options.

The user's options of `fairgate simulate`, and the values that they have in text.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from webhook.addons.simulation.task import Evictions, MovedTiers, Refusals, Settings
from webhook.addons.simulation.traces.formats import MAX_SECONDS
from webhook.addons.simulation.traces.load import DEFAULT_MIX, Size, parse_mix
from webhook.cli.options import Layout, WorldOptions, command, option, path_option

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NODE: Final = re.compile(r"([0-9]{1,3})x(.{1,63})")


class Duration(click.ParamType[int]):
    """A length of time such as 90s, 30m, 8h or 7d, as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds of a text."""
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(str(value).strip())
        seconds = int(found[1]) * _UNITS[found[2]] if found else -1
        if not 0 <= seconds <= MAX_SECONDS:
            self.fail(f"{value!r}: expected a length of time such as 90s, 30m, 8h or 7d", param, ctx)
        return seconds


class Mix(click.ParamType[tuple[Size, ...]]):
    """Sizes of pods with their weights."""

    name = "mix"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Size, ...]:
        """Return the sizes of a text."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_mix(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that might be bought: the GPUs of each, and their model."""

    gpus: int
    model: str


class NodeKindType(click.ParamType[NodeKind]):
    """GPUs of a node and their model, as in 8xNVIDIA-H100-80GB-HBM3."""

    name = "node"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> NodeKind:
        """Return the nodes of a text."""
        found = _NODE.fullmatch(str(value).strip())
        if found is None or not int(found[1]):
            self.fail(f"{value!r}: expected GPUSxMODEL, as in 8xNVIDIA-H100-80GB-HBM3", param, ctx)
        return NodeKind(int(found[1]), found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(WorldOptions):
    """The user's options."""

    policies: tuple[Path, ...] = path_option(
        "--policy",
        multiple=True,
        metavar="DIR",
        envvar="FAIRGATE_POLICY",
        show_envvar=True,
        help="Folder or file of a policy; repeat it to compare several. Default: the policy in force in the cluster of "
        "the world, or in its history.",
    )
    trace: Path | None = path_option(
        "--trace",
        help="Tasks (CSV): Fairgate's own columns, openb's or Helios's; Philly's cluster_job_log; or a history of "
        "replay.",
    )
    load: float | None = option(
        "--load",
        type=click.FloatRange(0.01, 10),
        metavar="PART",
        help="Tasks at random that ask for this part of the GPUs, 0.9 for 90 %; sizes by --trace, else by --mix.",
    )
    mix: tuple[Size, ...] = option(
        "--mix",
        type=Mix(),
        default=DEFAULT_MIX,
        metavar="SIZES",
        help="With --load: GPUS:WEIGHT or PODSxGPUS:WEIGHT of pods that start together, separated by commas.",
    )
    days: float = option("--days", type=click.FloatRange(0.01, 366), default=7, help="With --load: how long.")
    run_seconds: int = option(
        "--run-time", type=Duration(), default="4h", help="With --load: the mean run time of --mix."
    )
    seed: int = option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers."
    )
    rounds: int = option(
        "--rounds",
        type=click.IntRange(1, 100),
        default=1,
        help="Rounds with seeds from --seed on; numbers are means with 95 % confidence.",
    )
    renamed: tuple[str, ...] = option(
        "--rename-team", multiple=True, metavar="OLD=NEW", help="A team of the trace is this team. Repeatable."
    )
    is_dealt: bool = option(
        "--deal-teams", is_flag=True, help="Deal tasks to teams by guaranteed share, whatever the trace says."
    )
    keeps_pods: bool = option(
        "--keep-pods", is_flag=True, help="GPU pods of the world stay; by default the nodes are empty."
    )
    refused: Refusals = option(
        "--refused",
        type=click.Choice(Refusals, case_sensitive=False),
        default=Refusals.RETRY,
        help="Refused for a limit or for room: created again once there is room, or lost.",
    )
    evicted: Evictions = option(
        "--evicted",
        type=click.Choice(Evictions, case_sensitive=False),
        default=Evictions.RESTART,
        help="Evicted pods: created again, or lost.",
    )
    moved: MovedTiers = option(
        "--moved",
        type=click.Choice(MovedTiers, case_sensitive=False),
        default=MovedTiers.POLICY,
        help="Pods that are moved to make room for waiting ones: within the bounds of policy section defragment, or "
        "without that every ten minutes, where `fairgate defragment` finds moves that are worth it.",
    )
    checkpoint_seconds: int = option(
        "--checkpoint", type=Duration(), default="0s", help="How often work is saved; 0s: never."
    )
    buy: NodeKind | None = option(
        "--buy", type=NodeKindType(), metavar="GPUSxMODEL", help="Find how many such nodes make --within true."
    )
    within: int = option("--within", type=Duration(), default="1h", help="With --buy: the longest wait allowed.")
    percentile: str = option(
        "--percentile",
        type=click.Choice(["50", "90", "99"]),
        default="90",
        help="With --buy: which percentile of the waits.",
    )
    of_team: str | None = option(
        "--of-team", metavar="NAME", help="With --buy: only jobs of this team count. Default: all."
    )
    layout: Layout = option(
        "-o",
        "--output",
        type=click.Choice([Layout.TABLE, Layout.JSON], case_sensitive=False),
        default=Layout.TABLE.value,
    )
    report: Path | None = path_option(
        "--report", help="Also write plots and tables to one HTML file that loads nothing else."
    )
    csv: Path | None = path_option(
        "--csv", metavar="DIR", help="Also write tables and samples as CSV, and plots as SVG, into this folder."
    )

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.trace is None and self.load is None:
            raise click.UsageError("give --trace, --load or both")
        if self.rounds > 1 and self.load is None:
            raise click.UsageError("--rounds needs --load: a trace is the same in every round")
        if self.load is not None and not self.run_seconds:
            raise click.UsageError("--run-time must be above 0")
        if bad := [each for each in self.renamed if "=" not in each]:
            raise click.UsageError(f"--rename-team {bad[0]}: expected OLD=NEW")

    @property
    def teams(self) -> dict[str, str]:
        """New names of teams of the trace."""
        return dict(each.split("=", 1) for each in self.renamed)

    @property
    def settings(self) -> Settings:
        """What is assumed of pods."""
        return Settings(self.refused, self.evicted, self.checkpoint_seconds, moved=self.moved)


# `fairgate simulate`: the help; options.py has the options, run.py implements it.


_EXAMPLES = """\b
Examples:
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv
  fairgate simulate --world nodes.csv --policy policies.old --policy policies.new --load 0.9 --days 2 --rounds 3
  fairgate simulate --world world.yaml --policy policies --load 0.8 --mix 1:60,4:30,8:10 --report report.html
  fairgate simulate --world world.yaml --policy policies --trace history.db
  fairgate simulate --world nodes.csv --policy policies --trace tasks.csv --buy 8xNVIDIA-H100-80GB-HBM3 --within 1h

\b
Exit status: 0 shown, 2 the policy, the world or the trace cannot be read, or an output not be written."""


@command(Options, epilog=_EXAMPLES, short_help="Show how long a load waits under a policy, in simulated time.")
def simulate(options: Options) -> None:
    """Run a load through the decisions of the webhook, the queue and reclaim in simulated time; nothing is written.

    It says how long jobs wait (50, 90 and 99 percent of them at most so long), how many GPUs are in use, how fragmented
    the free ones are, what is evicted, and how much work that loses. The world is a file of `fairgate world`, a live
    cluster, a table of nodes (CSV: name, gpus, model, cpu, memory, count, or openb's columns), or a history.

    The same inputs and seed give the same result. What is left out: the time in which pods start and end, failures of
    nodes and pods, and autoscalers.
    """
    options.check()
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.addons.simulation.simulate.run import run  # noqa: PLC0415

    run(options)
