"""The questions that the page passes on: what it shows of an explanation and of a review. Ports, no behavior."""

from typing import Any, Protocol

import msgspec

from webhook.page.live.readable import Readable
from webhook.page.views.waiting_row import WaitingReport


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One pod: what it does now, what the decision on it would be, and all steps as the command prints them.

    `state` says what it does, where and since when, and `kind` is that as a word of `PodState`; `since` is in seconds
    of Unix time, 0 for not known. `waiting` is its row in line, `eviction` says which eviction is announced. The
    outcome of a pod in line is that it waits; of any other it is the one if it were created now.
    """

    state: str
    kind: str
    node: str
    since: int
    team: str
    tier: str
    gpus: str
    user: str
    owner: str
    eviction: str
    waiting: WaitingReport | None
    outcome: str
    outcome_tier: str
    reasons: tuple[tuple[str, str], ...]
    text: str

    @property
    def is_queued(self) -> bool:
        """Whether it waits in line."""
        return self.kind == "queued"


class Reviewed(msgspec.Struct, frozen=True):
    """Manifests reviewed: the report of `fairgate review` as plain values, or why there is none."""

    report: dict[str, Any] = {}
    problem: str = ""


class MovesShown(msgspec.Struct, frozen=True):
    """Moves of pods that would make room: the report of `fairgate defragment` as plain values, or why there is none."""

    report: dict[str, Any] = {}
    problem: str = ""


class Answers(Protocol):
    """Answers questions about the present world by the commands' own code. All raise SnapshotError."""

    async def explain(self, namespace: str, name: str, readable: Readable) -> Explained | None:
        """Explain a pod from what may be read; None where that has none of this name."""

    async def review(self, manifest: bytes, readable: Readable, *, namespace: str, user: str) -> Reviewed:
        """Review manifests; those of namespaces that the viewer may not see are not judged."""

    async def moves(self, readable: Readable) -> MovesShown:
        """Return the moves that would make room for pods that wait; only for a viewer who sees all."""
