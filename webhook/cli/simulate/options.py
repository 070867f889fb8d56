"""The user's options of `fairgate simulate`, and the values that they have in text."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from webhook.cli.command import WorldOptions, option, path_option
from webhook.cli.options import Layout
from webhook.simulation.task import Evictions, MovedTiers, Refusals, Settings
from webhook.simulation.traces.row import MAX_SECONDS
from webhook.simulation.traces.synthetic import DEFAULT_MIX, Size, parse_mix

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
        show_default=True,
        metavar="SIZES",
        help="With --load: GPUS:WEIGHT or PODSxGPUS:WEIGHT of pods that start together, separated by commas.",
    )
    days: float = option(
        "--days", type=click.FloatRange(0.01, 366), default=7, show_default=True, help="With --load: how long."
    )
    run_seconds: int = option(
        "--run-time", type=Duration(), default="4h", show_default=True, help="With --load: the mean run time of --mix."
    )
    seed: int = option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers."
    )
    rounds: int = option(
        "--rounds",
        type=click.IntRange(1, 100),
        default=1,
        show_default=True,
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
        show_default=True,
        help="Refused for a limit or for room: created again once there is room, or lost.",
    )
    evicted: Evictions = option(
        "--evicted",
        type=click.Choice(Evictions, case_sensitive=False),
        default=Evictions.RESTART,
        show_default=True,
        help="Evicted pods: created again, or lost.",
    )
    moved: MovedTiers = option(
        "--moved",
        type=click.Choice(MovedTiers, case_sensitive=False),
        default=MovedTiers.NONE,
        show_default=True,
        help="Pods that are moved to make room for waiting ones, every ten minutes, where `fairgate defragment` finds "
        "moves that are worth it.",
    )
    checkpoint_seconds: int = option(
        "--checkpoint", type=Duration(), default="0s", show_default=True, help="How often work is saved; 0s: never."
    )
    buy: NodeKind | None = option(
        "--buy", type=NodeKindType(), metavar="GPUSxMODEL", help="Find how many such nodes make --within true."
    )
    within: int = option(
        "--within", type=Duration(), default="1h", show_default=True, help="With --buy: the longest wait allowed."
    )
    percentile: str = option(
        "--percentile",
        type=click.Choice(["50", "90", "99"]),
        default="90",
        show_default=True,
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
        show_default=True,
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
