"""Reload, load.

Loads a policy folder as core.Policy, or raises all its problems.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from webhook.core.model.policy import Enforcement, Policy
from webhook.policy.build import build
from webhook.policy.documents import (
    Files,
    PolicyError,
    PolicyUnreadable,
    Problem,
    fingerprint,
    read_documents,
    read_files,
)
from webhook.policy.validate import Draft, check_documents

_UNREAD: Final = "is without effect: the add-on that reads it is not installed; remove the section, or install it"


def load(path: Path, *, unread: Collection[str] = ()) -> Policy:
    """Load a folder, or one file. Raises PolicyError with all problems, PolicyUnreadable if it cannot be read."""
    return parse(read_files(path), origin=str(path), unread=unread)


def parse(files: Files, *, origin: str, unread: Collection[str] = ()) -> Policy:
    """Return the policy of file contents, as `read_draft` reads them. Raises PolicyError."""
    return build(read_draft(files, origin=origin, unread=unread))


def with_enforcement(policy: Policy, *, enforce: Enforcement | None) -> Policy:
    """Return the policy with its enforcement replaced; None leaves it."""
    return policy if enforce is None else replace(policy, enforce=enforce)


def read_draft(files: Files, *, origin: str, unread: Collection[str] = ()) -> Draft:
    """Parse and check file contents; the draft has no problems, and knows file and line of its parts.

    Problems without a file name `origin`. Sections that are `unread` are a problem: what reads them is not installed.
    Raises PolicyError.
    """
    if not files:
        raise PolicyError((Problem(origin, 0, "", "no policy files: expected at least one *.yaml or *.yml here"),))
    parsed = read_documents(files)
    draft = check_documents(parsed.documents, is_complete=not parsed.problems)
    without_effect = (each.problem(_UNREAD) for name, each in draft.sections.items() if name in unread)
    problems = {*parsed.problems, *draft.problems, *without_effect}
    if not problems and not parsed.documents:
        problems.add(Problem(origin, 0, "", "no policy in these files: every document is empty"))
    if problems:
        raise PolicyError(tuple(sorted(problems, key=lambda p: (p.file, p.line, p.path, p.message))))
    return draft


# Live reload: replaces the policy in force when its files change, and keeps it if they become invalid.


INTERVAL_SECONDS: Final = 0.5
"""Time between two polls. An edit is in force after two of them, well within the documented 2 s."""


@dataclass(frozen=True, slots=True)
class _Poll:
    """The result of one poll of the files; `seen` identifies their content, or the error."""

    seen: str
    result: Policy | tuple[Problem, ...] | None = None  # None: nothing to apply (yet)
    files: Files = field(default_factory=dict)


class InForce(NamedTuple):
    """A policy and its files."""

    policy: Policy
    files: Files


class PolicyHolder:
    """Holds the last valid policy and its `files`.

    A change counts once two polls in a row see the same content: an editor truncates a file before it writes it, and a
    ConfigMap mount shows files of two generations while its symlink is swapped; either may be a valid policy without
    half of the teams. Polls do all file work and may run in a thread; `current` and `problem` change in the caller's.
    """

    def __init__(self, path: Path, *, enforce: Enforcement | None = None, unread: Collection[str] = ()) -> None:
        """Load the policy. Raises PolicyError or PolicyUnreadable. `enforce` overrides the policy's own value."""
        self._path = path
        self._unread = unread
        self._enforce = enforce
        files = read_files(path)
        self.current: Policy = with_enforcement(parse(files, origin=str(path), unread=unread), enforce=enforce)
        self.files: Files = files
        self.problem: str | None = None
        self.problems: tuple[Problem, ...] = ()
        self._applied = self._last_seen = fingerprint(files)

    def in_force(self) -> InForce:
        """Return the policy in force with its files."""
        return InForce(self.current, self.files)

    def check(self) -> bool:
        """Poll once and apply the result. Return whether the policy changed."""
        before = self.current
        self._apply(self._poll())
        return self.current is not before

    async def run(
        self,
        on_change: Callable[[Policy], None],
        on_problem: Callable[[tuple[Problem, ...]], None],
        *,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """Poll until canceled.

        `on_change` is called with each new policy, and with the old one when an invalid edit was reverted;
        `on_problem` with each new set of problems.
        """
        while True:
            await asyncio.sleep(interval)
            poll = await asyncio.to_thread(self._poll)
            if self._apply(poll):
                if self.problems:
                    on_problem(self.problems)
                else:
                    on_change(self.current)

    def _poll(self) -> _Poll:
        try:
            files = read_files(self._path)
        except PolicyUnreadable as error:
            problem = Problem(str(self._path), 0, "", str(error))
            return self._skipped(f"unreadable: {error}") or _Poll(f"unreadable: {error}", (problem,))
        seen = fingerprint(files)
        return self._skipped(seen) or _Poll(seen, self._parsed(files), files)

    def _skipped(self, seen: str) -> _Poll | None:
        """Return an empty result if the content is already applied, or is seen for the first time."""
        return _Poll(seen) if seen == self._applied or seen != self._last_seen else None

    def _parsed(self, files: Files) -> Policy | tuple[Problem, ...]:
        try:
            return with_enforcement(parse(files, origin=str(self._path), unread=self._unread), enforce=self._enforce)
        except PolicyError as error:
            return error.problems

    def _apply(self, poll: _Poll) -> bool:
        """Apply the result of a poll. Return whether the policy or its problems changed."""
        self._last_seen = poll.seen
        if poll.result is None:
            return False
        self._applied = poll.seen
        was = (self.current, self.problems)
        if isinstance(poll.result, Policy):
            self.problem, self.problems, self.files = None, (), poll.files
            if poll.result != self.current:
                self.current = poll.result
        else:
            self.problems = poll.result
            self.problem = "\n".join(map(str, poll.result))
        return (self.current, self.problems) != was
