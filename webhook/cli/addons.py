"""The table of add-ons: by name what each one adds, as import strings, so that nothing imports it before it is used.

An add-on is a folder of `webhook/addons`. Where it is missing, its commands and options are, too, and whatever asks it
does without.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

ROOM: Final = "room"
"""What makes a world of the report of the cluster without names."""

MOVES: Final = "moves"
"""What finds moves of other pods that would make room for one."""

SIMULATED_MOVES: Final = "simulated moves"
"""What moves pods in a simulated cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """An add-on. `serve` and `evict` name what makes it in a process; if that is a class of options, they are flags.

    `needs` are add-ons without which it is left out, `section` is that of the policy which it alone reads. `answers`
    has, by question, what others ask.
    """

    needs: tuple[str, ...] = ()
    section: str = ""
    serve: str = ""
    evict: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)


ADDONS: Final[Mapping[str, Addon]] = {
    "history": Addon(serve="server:Options", commands={"usage": "usage.command:usage"}),
    "viewers": Addon(serve="server:Viewers", answers={ROOM: "room_report:read_room"}),
    "idle": Addon(section="idle", evict="idle_gpus:Idle"),
    "simulation": Addon(
        needs=("history",),
        commands={"replay": "replay.command:replay", "simulate": "simulate.command:simulate"},
    ),
    "moves": Addon(
        section="defragment",
        evict="mover:Moves",
        commands={"defragment": "command:defragment"},
        answers={MOVES: "reading:OtherPods", SIMULATED_MOVES: "simulated:SimulatedMoves"},
    ),
    "messages": Addon(section="notify", serve="server:Options", evict="evictor:Options"),
    "page": Addon(needs=("history", "moves"), commands={"page": "command:page"}),
}
"""In the order in which they are called; an import string is MODULE:NAME within the folder."""


@cache
def is_there(name: str) -> bool:
    """Whether an add-on is installed, with all that it needs."""
    try:
        spec = find_spec(f"webhook.addons.{name}")
    except ModuleNotFoundError:
        return False
    return spec is not None and spec.origin is not None and all(map(is_there, ADDONS[name].needs))


def place(name: str, what: str) -> str:
    """Return the import string of a part of an add-on."""
    return f"webhook.addons.{name}.{what}"


def load(string: str) -> Any:  # noqa: ANN401 - whatever that is
    """Import what a string names, MODULE:NAME."""
    module, _, attribute = string.partition(":")
    return getattr(importlib.import_module(module), attribute)


def found() -> Iterator[tuple[str, Addon]]:
    """Yield the add-ons that are there."""
    return ((name, addon) for name, addon in ADDONS.items() if is_there(name))


def commands() -> dict[str, str]:
    """Return the import strings of the add-ons' commands."""
    return {command: place(name, what) for name, addon in found() for command, what in addon.commands.items()}


def unread() -> frozenset[str]:
    """Return the sections of the policy that are without effect: the add-ons that read them are not there."""
    return frozenset(addon.section for name, addon in ADDONS.items() if addon.section and not is_there(name))


def of_serve() -> list[Callable[..., Any]]:
    """Return what makes the add-ons of a server."""
    return [load(place(name, addon.serve)) for name, addon in found() if addon.serve]


def of_evict() -> list[Callable[..., Any]]:
    """Return what makes the add-ons of an evictor."""
    return [load(place(name, addon.evict)) for name, addon in found() if addon.evict]


def ask(question: str) -> Any:  # noqa: ANN401 - whatever that is
    """Return what answers a question; None where no add-on does."""
    strings = (place(name, addon.answers[question]) for name, addon in found() if question in addon.answers)
    return next(map(load, strings), None)
