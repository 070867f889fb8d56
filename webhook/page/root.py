"""The composition root of the page: the only place that wires its parts together."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from webhook.files import Snapshots
from webhook.http.connections import Bounds, Connections
from webhook.http.server import listening, open_sockets, options
from webhook.page.access.access import Authenticator, Hosts, UrlAuthenticator
from webhook.page.http.answers import Answers
from webhook.page.http.app import PageApp
from webhook.page.http.templates import Templates
from webhook.page.http.view_pages import ViewPages
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.hub import Hub
from webhook.page.live.readable import SharedLine
from webhook.page.views.teams import UsageHistory

LOCAL: Final = "127.0.0.1"
_SHUTDOWN_SECONDS: Final = 2.0
BOUNDS: Final = Bounds(connections=1024, of_address=512, idle_seconds=30.0)
"""A browser has six connections, one of them for its stream. Behind a proxy all come from one address."""

_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - how a host is named, not one that is bound by default


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Where the page is served. `names` are further hosts that requests may name; port 0 is any free one."""

    host: str = LOCAL
    port: int = 0
    names: frozenset[str] = frozenset()


class Page:
    """One page: its state, its authenticator, and what answers. `snapshots` are shared with `answers`."""

    def __init__(
        self,
        state: ClusterState,
        authenticator: Authenticator,
        answers: Answers,
        *,
        snapshots: Snapshots,
        history: UsageHistory | None = None,
    ) -> None:
        self.hub = Hub(state)
        self.authenticator = authenticator
        self._line = SharedLine(state, snapshots)
        templates = Templates()
        self._views = ViewPages(
            state,
            self.hub,
            self._line,
            answers,
            templates=templates,
            history=history,
            takes_tokens=authenticator.takes_tokens,
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
        return (
            f"{site}/open?token={self.authenticator.token}"
            if isinstance(self.authenticator, UrlAuthenticator)
            else f"{site}/"
        )

    async def _start(self, settings: PageSettings, stack: AsyncExitStack) -> str:
        """Listen, and return the URL of the site."""
        sockets = open_sockets(settings.host, settings.port)
        port: int = sockets[0].getsockname()[1]
        hosts = Hosts(settings.names, port if settings.host == LOCAL else None)
        app = PageApp(self._views, self.authenticator, hosts, templates=self._templates).application()
        # With its cancellation a closed page frees its stream, and work on its question, at once.
        runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True, **options())
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        if runner.server is None:
            raise RuntimeError("the runner was set up")
        connections = Connections(runner.server, BOUNDS.within_files())
        await stack.enter_async_context(listening(connections, sockets, finish_seconds=_SHUTDOWN_SECONDS))
        stack.callback(self.hub.drop_all)  # open pages would hold the end up, and connect again by themselves
        return f"http://{LOCAL if settings.host in _EVERY_ADDRESS else settings.host}:{port}"


async def _run(keep: Callable[[], Awaitable[None]]) -> None:
    await keep()
