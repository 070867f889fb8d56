"""The evictor's HTTP endpoints: liveness, readiness and metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from webhook.observe.reclaim import ReclaimMetrics


class Endpoints:
    """Answers /healthz, /readyz and /metrics in plain HTTP, for kubelet and Prometheus."""

    def __init__(self, metrics: ReclaimMetrics, *, why_not_ready: Callable[[], str | None]) -> None:
        self._metrics = metrics
        self._why_not_ready = why_not_ready

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Serve until the block ends; yield the URL. Raises OSError if the address cannot be bound."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._expose)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host or None, port).start()
            bound = runner.addresses[0]
            yield f"http://{bound[0]}:{bound[1]}"
        finally:
            await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        why = self._why_not_ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    async def _expose(self, request: web.Request) -> web.Response:
        shown = self._metrics.expose(request.headers.get("Accept", ""))
        return web.Response(body=shown.body, headers={"Content-Type": shown.content_type})
