"""Runs what keeps the cluster's state current, and reports whether that state is synced and fresh."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import RestoredError
from webhook.cluster.watch.autoscalers import AutoscalerWatch
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.cluster.watch.watch import Watch
from webhook.cluster.watch.watched_kind import WatchedKind

STALE_SECONDS: Final = 120.0
"""Silence after which a watch counts as stale: bookmarks come about every 60 s, so at least one is missing."""


class Feed:
    """Runs one watch per kind, and looks for autoscalers. Start `run` as a task.

    A process whose other parts have their own memory of the cluster starts `end_if_restored`, too; views need not.
    """

    def __init__(
        self,
        connection: ApiConnection,
        kinds: Sequence[WatchedKind[Any]],
        *,
        pace: Pace = DEFAULT_PACE,
        stale_seconds: float = STALE_SECONDS,
        autoscalers: AutoscalerWatch | None = None,
    ) -> None:
        self._restored: asyncio.Queue[RestoredError] = asyncio.Queue()
        self.watches = tuple(Watch(connection, kind, pace=pace, on_restored=self.note_restored) for kind in kinds)
        self._stale_seconds = stale_seconds
        self._autoscalers = autoscalers
        self._are_synced = False

    async def run(self) -> None:
        """Run all watches until cancelled. Cluster failures never end it; a bug raises an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            for watch in self.watches:
                group.create_task(watch.run(), name=f"watch {watch.kind.name}")
            if self._autoscalers is not None:
                group.create_task(self._autoscalers.run(), name="autoscalers")

    def note_restored(self, error: RestoredError) -> None:
        """Note that a watch, or another reader of the cluster, found that etcd was restored."""
        self._restored.put_nowait(error)

    async def end_if_restored(self) -> NoReturn:
        """Raise RestoredError once that was found: the process is to start again.

        Ledgers, Leases, pods in line and what was published last are remembered with versions that no longer exist.
        """
        raise await self._restored.get()

    def why_not_synced(self) -> str | None:
        """Return which kinds have no complete list yet, None if all have: until then nothing can be decided."""
        if self._are_synced:  # for good: each review asks
            return None
        names = [watch.kind.name for watch in self.watches if not watch.synced]
        self._are_synced = not names
        return f"not listed yet: {', '.join(names)}" if names else None

    @property
    def forbidden(self) -> Watch[Any] | None:
        """A watch of a kind that is needed and that RBAC forbids, None if there is none."""
        return next((each for each in self.watches if each.is_forbidden and each.kind.needs_right), None)

    def left_out(self) -> list[str]:
        """Return the kinds that RBAC forbids and that count as kinds without objects."""
        return [each.kind.name for each in self.watches if each.is_forbidden and not each.kind.needs_right]

    async def wait_synced(self) -> None:
        """Wait until every kind has a first complete list, and autoscalers were looked for."""
        for watch in self.watches:
            await watch.listed.wait()
        if self._autoscalers is not None:
            await self._autoscalers.looked.wait()

    def readiness(self) -> str | None:
        """Return why decisions must not be made on this state; None if every kind is listed and fresh."""
        now = asyncio.get_running_loop().time()
        reasons = (_why_stale(watch, now, self._stale_seconds) for watch in self.watches)
        return "; ".join(reason for reason in reasons if reason) or None


def _why_stale(watch: Watch[Any], now: float, stale_seconds: float) -> str | None:
    name = watch.kind.name
    if watch.synced and watch.last_contact is not None:
        silence = now - watch.last_contact
        if silence <= stale_seconds:
            return None
        state = f"{name}: no event from the API server for {silence:.0f} s"
    else:
        state = f"{name}: not listed yet"
    return f"{state}: {watch.problem}" if watch.problem else state
