"""Readiness: named conditions, all of which must hold. Liveness needs no state: a loop that answers is alive."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `why` it does not hold, or a remark where it holds with something to say."""

    ok: bool
    why: str = ""


OK: Final = Condition(ok=True)


class Readiness:
    """The conditions of one server by name. Ready only when all of them hold; one that was never set does not.

    Conditions named at the start wait to be `set`; those that depend on time are `watch`ed: asked on every probe.
    """

    def __init__(self, *names: str) -> None:
        self._set = dict.fromkeys(names, Condition(ok=False, why="not there yet"))
        self._watched: dict[str, Callable[[], str | None]] = {}
        self._remarks: dict[str, Callable[[], str | None]] = {}

    def set_ok(self, name: str, *, remark: str = "") -> None:
        """Say that a condition holds; the remark is shown with it."""
        self._set[name] = Condition(ok=True, why=remark)

    def watch(
        self, name: str, why_not: Callable[[], str | None], *, remark: Callable[[], str | None] | None = None
    ) -> None:
        """Ask on every probe why a condition does not hold; None: it holds, with a remark if there is one."""
        self._watched[name] = why_not
        if remark is not None:
            self._remarks[name] = remark

    def conditions(self) -> dict[str, Condition]:
        """Read all conditions as they are now."""
        asked = {name: why_not() for name, why_not in self._watched.items()}
        return self._set | {
            name: Condition(ok=False, why=why) if why else self._remarked(name) for name, why in asked.items()
        }

    def _remarked(self, name: str) -> Condition:
        remark = self._remarks[name]() if name in self._remarks else None
        return Condition(ok=True, why=remark) if remark else OK

    def why_not(self) -> str | None:
        """Say which conditions do not hold, and why; None: ready."""
        lacking = [f"{name}: {each.why}" for name, each in self.conditions().items() if not each.ok]
        return "; ".join(lacking) or None

    @property
    def is_ready(self) -> bool:
        """Tell whether every condition holds."""
        return all(condition.ok for condition in self.conditions().values())
