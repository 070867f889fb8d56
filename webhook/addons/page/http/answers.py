"""The questions that the page passes on: what it shows of an explanation and of a review. Ports, no behavior."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from webhook.addons.page.live.readable import Readable
from webhook.cli.queue.rows import WaitingReport


class CodeHelp(NamedTuple):
    """What causes a code, and what to do then; code in it is between backticks."""

    cause: str
    remedy: str


class LimitShown(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a pod counts towards.

    `percents` of a bar: what others take, what the pod adds, where the limit is.
    """

    of: str
    limit: str
    taken: str
    with_the_pod: str
    holds: bool
    percents: tuple[int, int, int]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One pod: what it does now, what the decision on it would be, and all steps as the command prints them.

    `state` says what it does, where and since when, and `kind` is that as a word of `PodState`; `since` is in seconds
    of Unix time, 0 for not known. `waiting` is its row in line, `eviction` says which eviction is announced. `nodes`
    are the first of those that have room, `idle` says that it does not use its GPUs, "" if it does. The outcome of a
    queued pod is that it waits; of any other it is the one if it were created now.
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
    limits: tuple[LimitShown, ...]
    nodes: tuple[str, ...]
    idle: str
    outcome: str
    outcome_tier: str
    reasons: tuple[tuple[str, str], ...]
    text: str

    @property
    def is_queued(self) -> bool:
        """Whether it waits in the queue."""
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
    """Answers questions about the present world by the commands' own code. All but `codes` raise SnapshotError."""

    @property
    def codes(self) -> Mapping[str, CodeHelp]:
        """The help of each code of a reason."""

    async def explain(self, namespace: str, name: str, readable: Readable) -> Explained | None:
        """Explain a pod from what may be read; None where that has none of this name."""

    async def review(self, manifest: bytes, readable: Readable, *, namespace: str, user: str) -> Reviewed:
        """Review manifests; those of namespaces that the viewer may not see are not judged."""

    async def moves(self, readable: Readable) -> MovesShown:
        """Return the moves that would make room for pods that wait; only for a viewer who sees all."""
