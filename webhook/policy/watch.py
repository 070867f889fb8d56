"""Live reload: the policy in force, exchanged when its files change, kept when an edit is broken."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from webhook.core.model.policy import Enforcement, Policy
from webhook.policy.load import overridden, parse
from webhook.policy.problems import PolicyError, PolicyUnreadable, Problem
from webhook.policy.source import Files, fingerprint, read_files

INTERVAL_SECONDS: Final = 0.5
"""Time between two looks. An edit is live after two of them: within the promised 2 s with room to spare."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the files saw; `seen` differs whenever something to act on differs."""

    seen: str
    result: Policy | tuple[Problem, ...] | None = None  # None: nothing to act on (yet)
    files: Files = field(default_factory=dict)


class InForce(NamedTuple):
    """A policy, and the files that say it."""

    policy: Policy
    files: Files


class PolicyHolder:
    """Holds the last good policy, and the `files` that say it.

    A change counts once two looks in a row see the same: an editor empties a file before it fills it, and a ConfigMap
    mount shows files of two generations while its symlink is swapped; either may be a valid policy without half of
    the teams. Looks do all the file work and may run in a thread; `current` and `problem` change on the caller's side.
    """

    def __init__(self, path: Path, *, enforce: Enforcement | None = None) -> None:
        """Load at once: raises PolicyError or PolicyUnreadable, as there is no last good policy yet.

        `enforce` overrides what the policy says of that.
        """
        self._path = path
        self._enforce = enforce
        files = read_files(path)
        self.current: Policy = overridden(parse(files, origin=str(path)), enforce=enforce)
        self.files: Files = files
        self.problem: str | None = None
        self.problems: tuple[Problem, ...] = ()
        self._acted_on = self._last_seen = fingerprint(files)

    def in_force(self) -> InForce:
        """Give the policy in force with its files."""
        return InForce(self.current, self.files)

    def check(self) -> bool:
        """Look once and act on it; tell whether another policy came into force."""
        before = self.current
        self._act(self._look())
        return self.current is not before

    async def run(
        self,
        on_change: Callable[[Policy], None],
        on_problem: Callable[[tuple[Problem, ...]], None],
        *,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """Keep looking until cancelled.

        `on_change` is called with each new policy, and with the old one when a broken edit was undone; `on_problem`
        with each new set of problems.
        """
        while True:
            await asyncio.sleep(interval)
            look = await asyncio.to_thread(self._look)
            if self._act(look):
                if self.problems:
                    on_problem(self.problems)
                else:
                    on_change(self.current)

    def _look(self) -> _Look:
        try:
            files = read_files(self._path)
        except PolicyUnreadable as error:
            problem = Problem(str(self._path), 0, "", str(error))
            return self._settled(f"unreadable: {error}") or _Look(f"unreadable: {error}", (problem,))
        seen = fingerprint(files)
        return self._settled(seen) or _Look(seen, self._parsed(files), files)

    def _settled(self, seen: str) -> _Look | None:
        """Say that there is nothing to do: already acted on, or seen for the first time."""
        return _Look(seen) if seen == self._acted_on or seen != self._last_seen else None

    def _parsed(self, files: Files) -> Policy | tuple[Problem, ...]:
        try:
            return overridden(parse(files, origin=str(self._path)), enforce=self._enforce)
        except PolicyError as error:
            return error.problems

    def _act(self, look: _Look) -> bool:
        """Take over what a look found; tell whether anything changed that is worth telling."""
        self._last_seen = look.seen
        if look.result is None:
            return False
        self._acted_on = look.seen
        was = (self.current, self.problems)
        if isinstance(look.result, Policy):
            self.problem, self.problems, self.files = None, (), look.files
            if look.result != self.current:
                self.current = look.result
        else:
            self.problems = look.result
            self.problem = "\n".join(map(str, look.result))
        return (self.current, self.problems) != was
