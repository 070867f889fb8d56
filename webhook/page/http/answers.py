"""The questions that the page passes on: what it shows of an explanation and of a review. Ports, no behavior."""

from typing import Any, Protocol

import msgspec

from webhook.page.live.readable import Readable


class Explained(msgspec.Struct, frozen=True):
    """One pod explained: what it does now, its outcome, and all steps as the command prints them.

    The outcome of a pod in line is that it waits; of any other it is the one if it were created now.
    """

    title: str
    state: str
    is_queued: bool
    outcome: str
    tier: str
    reasons: tuple[tuple[str, str], ...]
    text: str


class Reviewed(msgspec.Struct, frozen=True):
    """Manifests reviewed: the report of `fairgate review` as plain values, or why there is none."""

    report: dict[str, Any] = {}
    problem: str = ""


class Answers(Protocol):
    """Answers questions about the present world by the commands' own code. Both raise SnapshotError."""

    async def explain(self, namespace: str, name: str, readable: Readable) -> Explained | None:
        """Explain a pod from what may be read; None where that has none of this name."""

    async def review(self, manifest: bytes, readable: Readable, *, namespace: str, user: str) -> Reviewed:
        """Review manifests; those of namespaces that the viewer may not see are not judged."""
