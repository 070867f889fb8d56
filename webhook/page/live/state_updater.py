"""Keeps the state of the page: by watches where the user may watch everything, else by reading again what they may."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.watch.autoscalers import AutoscalerWatch
from webhook.cluster.watch.feed import Feed
from webhook.core.model.policy import Policy
from webhook.page.live.cluster_state import ClusterState, Reading, is_fresh
from webhook.page.live.cluster_watch import event_kinds, page_kinds, report_kind

AGAIN_SECONDS: Final = 15.0
"""Between two readings where watching is not allowed."""

TICK_SECONDS: Final = 5.0
"""Between two looks at what changes with time alone: which nodes reject pods, and stages of pods."""

_POLL_SECONDS: Final = 0.05
READING: Final = "The cluster is being read. Load this page again in a few seconds."
_NO_EVENTS: Final = "decisions are those on existing pods: you may not list Events in all namespaces"
_log: Final = logging.getLogger(__name__)


Reread = Callable[[], Awaitable[Reading]]
"""Reads once what may be read. Raises ClusterError."""

ReadPolicy = Callable[[Mapping[str, Any]], Policy | None]
"""Reads the policy of a Report; None where this version cannot."""


class StateUpdater:
    """Keeps the state of a live cluster. `reread` reads what is allowed where watching is not.

    `read_policy` is None where the policy is that of a folder, and stays.
    """

    def __init__(
        self, connection: ApiConnection, state: ClusterState, *, reread: Reread, read_policy: ReadPolicy | None
    ) -> None:
        self.is_listed = asyncio.Event()
        self._connection = connection
        self._state = state
        self._reread = reread
        self._read_policy = read_policy
        self._is_forbidden = asyncio.Event()

    async def run(self) -> None:
        """Keep the state until cancelled."""
        async with asyncio.TaskGroup() as group:
            parts = (self._follow_events(), self._follow_reports(), self._follow())
            following = [group.create_task(part) for part in parts]
            await self._is_forbidden.wait()
            for each in following:
                each.cancel()  # an error would do it, too, but a group that ends by one loses a cancellation meanwhile
        await self._read_again()

    async def _follow(self) -> None:
        """Watch everything; set `_is_forbidden` where that is not allowed."""
        state = self._state
        autoscalers = AutoscalerWatch(
            self._connection,
            state.world,
            note=lambda found: state.note_autoscalers(found.autoscalers, time.time()),
        )
        feed = Feed(self._connection, page_kinds(state), autoscalers=autoscalers)
        state.tick(int(time.time()))
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            while feed.why_not_synced() is not None:
                if feed.forbidden is not None:
                    self._is_forbidden.set()
                    return
                if problem := next((watch.problem for watch in feed.watches if watch.problem), None):
                    state.problem = f"{READING} {problem}"
                await asyncio.sleep(_POLL_SECONDS)
            for kind in feed.left_out():
                self._note(f"you may not list {kind}")
            state.world.sort_nodes()
            state.why_stale = feed.readiness
            state.tick(int(time.time()))
            self._show()
            while True:
                await asyncio.sleep(TICK_SECONDS)
                state.tick(int(time.time()))

    async def _follow_events(self) -> None:
        """Follow Events as far as that is allowed: without them the page has less to say, and still works."""
        feed = Feed(self._connection, event_kinds(self._state))
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            while feed.why_not_synced() is not None:
                if feed.forbidden is not None:
                    self._note(_NO_EVENTS)
                    break
                await asyncio.sleep(_POLL_SECONDS)

    async def _follow_reports(self) -> None:
        """Follow what Fairgate publishes, as far as that is allowed: the policy, the evictor, scores of forecasts."""
        self._state.evictor_at = 0.0

        def apply(report: Mapping[str, Any]) -> None:
            policy = None if self._read_policy is None else self._read_policy(report)
            if policy is not None and policy != self._state.world.policy:
                self._state.set_policy(policy)

        await Feed(self._connection, (report_kind(self._state, apply),)).run()

    async def _read_again(self) -> NoReturn:
        while True:
            try:
                reading = await self._reread()
            except ClusterError as error:
                self._say_old(str(error))
            else:
                self._state.replace(reading)
                self._state.why_stale = is_fresh
                self._show()
            self.is_listed.set()
            await asyncio.sleep(AGAIN_SECONDS)

    def _say_old(self, why: str) -> None:
        """Say that nothing newer can be read; what was read before stays."""
        if self._state.problem:
            self._state.problem = why
        else:
            self._state.why_stale = lambda: why

    def _show(self) -> None:
        self._state.problem = ""
        self._state.touch_all()
        self.is_listed.set()

    def _note(self, text: str) -> None:
        reading = self._state.reading
        if text not in reading.notes:
            reading.notes = (*reading.notes, text)
