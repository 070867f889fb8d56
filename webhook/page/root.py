"""The composition root of the page: the only place that wires its parts together."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from webhook.page.access.door import Door, LocalDoor
from webhook.page.access.hosts import Hosts
from webhook.page.http.answers import Answers
from webhook.page.http.app import PageApp
from webhook.page.http.templates import Templates
from webhook.page.http.view_pages import ViewPages
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.hub import Hub
from webhook.page.live.line import SharedLine
from webhook.page.live.snapshots import Snapshots
from webhook.page.views.usage_history import UsageHistory

LOCAL: Final = "127.0.0.1"
_SHUTDOWN_SECONDS: Final = 2.0
_BACKLOG: Final = 256
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - how a host is named, not one that is bound by default


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Where the page is served. `names` are further hosts that requests may name; port 0 is any free one."""

    host: str = LOCAL
    port: int = 0
    names: frozenset[str] = frozenset()


class Page:
    """One page: its state, its door, and what answers. `snapshots` are shared with `answers`."""

    def __init__(
        self,
        state: ClusterState,
        door: Door,
        answers: Answers,
        *,
        snapshots: Snapshots,
        history: UsageHistory | None = None,
    ) -> None:
        self.hub = Hub(state)
        self.door = door
        templates = Templates()
        self._views = ViewPages(
            state,
            self.hub,
            SharedLine(state, snapshots),
            answers,
            templates=templates,
            history=history,
            takes_tokens=door.takes_tokens,
        )
        self._templates = templates

    async def serve(
        self,
        settings: PageSettings,
        *,
        keep: Callable[[], Awaitable[None]],
        on_ready: Callable[[str], None],
    ) -> None:
        """Serve until cancelled; `on_ready` receives the URL to open. Raises OSError where the port is taken."""
        async with AsyncExitStack() as stack:
            site = await self._start(settings, stack)
            await self.hub.publish_rows()
            async with asyncio.TaskGroup() as group:
                group.create_task(_run(keep))
                group.create_task(self.hub.run())
                on_ready(self._url(site))

    def _url(self, site: str) -> str:
        return f"{site}/open?token={self.door.token}" if isinstance(self.door, LocalDoor) else f"{site}/"

    async def _start(self, settings: PageSettings, stack: AsyncExitStack) -> str:
        """Listen, and return the URL of the site."""
        listening = _bind(settings)
        port: int = listening.getsockname()[1]
        hosts = Hosts(settings.names, port if settings.host == LOCAL else None)
        app = PageApp(self._views, self.door, hosts, templates=self._templates).application()
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=30,
            handler_cancellation=True,  # a closed page frees its stream, and work on its question, at once
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.callback(self.hub.drop_all)  # open pages would hold the end up, and connect again by themselves
        await web.SockSite(runner, listening).start()
        return f"http://{LOCAL if settings.host in _EVERY_ADDRESS else settings.host}:{port}"


def _bind(settings: PageSettings) -> socket.socket:
    is_both = not settings.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_both or ":" in settings.host else socket.AF_INET
    address = (settings.host, settings.port)
    listening = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_both)
    listening.setblocking(False)
    return listening


async def _run(keep: Callable[[], Awaitable[None]]) -> None:
    await keep()
