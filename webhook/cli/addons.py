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


@dataclass(frozen=True, slots=True, kw_only=True)
class Addon:
    """An add-on. `serve` and `evict` name what makes it in a process; if that is a class of options, they are flags.

    `needs` are add-ons without which it is left out. `answers` has, by question, what core commands ask.
    """

    needs: tuple[str, ...] = ()
    serve: str = ""
    evict: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)


ROOM: Final = "room"
"""What makes a world of the report of the cluster without names."""

MOVES: Final = "moves"
"""What finds moves of other pods that would make room for one."""

ADDONS: Final[Mapping[str, Addon]] = {
    "history": Addon(serve="server:Options"),
    "viewers": Addon(serve="server:Viewers", answers={ROOM: "room_report:read_room"}),
    "idle": Addon(evict="idle_gpus:Idle"),
    "moves": Addon(evict="mover:Moves", answers={MOVES: "reading:OtherPods"}),
    "messages": Addon(serve="server:Options", evict="evictor:Options"),
}
"""In the order in which they are asked; an import string is MODULE:NAME within the folder."""


@cache
def is_there(name: str) -> bool:
    """Whether an add-on is installed, with all that it needs."""
    try:
        spec = find_spec(f"webhook.addons.{name}")
    except ModuleNotFoundError:
        return False
    return spec is not None and spec.origin is not None and all(map(is_there, ADDONS[name].needs))


def load(name: str, what: str) -> Any:  # noqa: ANN401 - whatever that is
    """Import a part of an add-on, MODULE:NAME."""
    module, _, attribute = what.partition(":")
    return getattr(importlib.import_module(f"webhook.addons.{name}.{module}"), attribute)


def found() -> Iterator[tuple[str, Addon]]:
    """Yield the add-ons that are there."""
    return ((name, addon) for name, addon in ADDONS.items() if is_there(name))


def of_serve() -> list[Callable[..., Any]]:
    """Return what makes the add-ons of a server."""
    return [load(name, addon.serve) for name, addon in found() if addon.serve]


def of_evict() -> list[Callable[..., Any]]:
    """Return what makes the add-ons of an evictor."""
    return [load(name, addon.evict) for name, addon in found() if addon.evict]


def ask(question: str) -> Any:  # noqa: ANN401 - whatever that is
    """Return what answers a question; None where no add-on does."""
    return next((load(name, addon.answers[question]) for name, addon in found() if question in addon.answers), None)
