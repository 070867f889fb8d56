"""The evictor's HTTP endpoints: liveness, readiness and metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from webhook.http.bounds import Bounds
from webhook.http.listen import open_sockets
from webhook.http.server import connections_of, listening
from webhook.observe.reclaim import ReclaimMetrics

BOUNDS: Final = Bounds(connections=256, of_address=64, idle_seconds=75.0)
"""A kubelet has one connection for each probe, and a Prometheus server one."""

FINISH_SECONDS: Final = 2.0
"""How long an answer may take after the end."""


class Endpoints:
    """Answers /healthz, /readyz and /metrics in plain HTTP, for kubelet and Prometheus."""

    def __init__(self, metrics: ReclaimMetrics, *, why_not_ready: Callable[[], str | None]) -> None:
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._expose}

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve until the block ends; yield the URL. Raises OSError if the address cannot be bound."""
        sockets = open_sockets(host, port)
        connections = connections_of(self.handle, BOUNDS)
        async with listening(connections, sockets, finish_seconds=FINISH_SECONDS):
            bound = sockets[0].getsockname()
            yield f"http://{bound[0]}:{bound[1]}"

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request: GET and HEAD, without a body."""
        answer = self._answers.get(request.path)
        if answer is None:
            return web.Response(text=f"no such path; the paths are {', '.join(self._answers)}", status=404)
        if request.method not in ("GET", "HEAD"):
            return web.Response(text="GET and HEAD only", status=405, headers={"Allow": "GET, HEAD"})
        if request.body_exists:
            return web.Response(text="no body is read", status=413)
        return answer(request)

    def _healthz(self, _request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    def _readyz(self, _request: web.BaseRequest) -> web.Response:
        why = self._why_not_ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    def _expose(self, request: web.BaseRequest) -> web.Response:
        shown = self._metrics.expose(request.headers.get("Accept", ""))
        return web.Response(body=shown.body, headers={"Content-Type": shown.content_type})
