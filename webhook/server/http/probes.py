"""Readiness: named conditions that must all hold. Liveness needs no state: an event loop that responds is alive."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ReadyCondition:
    """One condition: `why` it does not hold, or an optional remark if it holds."""

    ok: bool
    why: str = ""


OK: Final = ReadyCondition(ok=True)


class Readiness:
    """The conditions of one server by name. Ready only if all of them hold; a condition that was never set does not.

    Conditions named at the start are set by `set_ok`; those added by `watch` are evaluated on every probe.
    """

    def __init__(self, *names: str) -> None:
        self._set = dict.fromkeys(names, ReadyCondition(ok=False, why="not available yet"))
        self._watched: dict[str, Callable[[], str | None]] = {}
        self._remarks: dict[str, Callable[[], str | None]] = {}

    def set_ok(self, name: str, *, remark: str = "") -> None:
        """Set a condition to hold; the remark is shown with it."""
        self._set[name] = ReadyCondition(ok=True, why=remark)

    def watch(
        self, name: str, why_not: Callable[[], str | None], *, remark: Callable[[], str | None] | None = None
    ) -> None:
        """Evaluate a condition on every probe: `why_not` returns None if it holds, then `remark` may add a text."""
        self._watched[name] = why_not
        if remark is not None:
            self._remarks[name] = remark

    def conditions(self) -> dict[str, ReadyCondition]:
        """Return all conditions as of now."""
        reasons = {name: why_not() for name, why_not in self._watched.items()}
        return self._set | {
            name: ReadyCondition(ok=False, why=why) if why else self._remarked(name) for name, why in reasons.items()
        }

    def _remarked(self, name: str) -> ReadyCondition:
        remark = self._remarks[name]() if name in self._remarks else None
        return ReadyCondition(ok=True, why=remark) if remark else OK

    def why_not(self) -> str | None:
        """Return which conditions do not hold, and why; None if ready."""
        failing = [f"{name}: {each.why}" for name, each in self.conditions().items() if not each.ok]
        return "; ".join(failing) or None
