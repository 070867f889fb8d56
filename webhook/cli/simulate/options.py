"""The user's options of `fairgate simulate`, and the values that they have in text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from webhook.cli.options import Layout
from webhook.simulation.task import Settings
from webhook.simulation.traces.row import MAX_SECONDS
from webhook.simulation.traces.synthetic import Size, parse_mix

if TYPE_CHECKING:
    from webhook.cli.world_source import Source

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


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """A random load: the part of the GPUs that it asks for, over how long, in which sizes, for how long each."""

    part: float
    seconds: int
    run_seconds: int
    mix: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class BuyOptions:
    """How many nodes are needed for a wait: the percentile of a team's jobs (None: of all) that must be below it."""

    kind: NodeKind
    wait_seconds: int
    percent: int
    team: str | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go besides standard output."""

    layout: Layout
    report: Path | None = None
    csv: Path | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options. `teams` renames teams of the trace."""

    policies: tuple[Path, ...]
    source: "Source"
    trace: Path | None
    load: LoadOptions | None
    buy: BuyOptions | None
    outputs: Outputs
    settings: Settings
    seed: int = 0
    rounds: int = 1
    keeps_pods: bool = False
    teams: Mapping[str, str] | None = None
    is_dealt: bool = False
