"""A small Prometheus over real HTTP: instant queries of the one form that is asked, and faults on demand."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

QUERY = re.compile(
    r"max by \((?P<by>[^)]*)\) \(max_over_time\((?P<name>\w+)\{(?P<matchers>.*)\}\[(?P<seconds>\d+)s\]\)\)"
)
UTIL = "DCGM_FI_DEV_GPU_UTIL"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


class FakePrometheus:
    """Answers with `series`: values by metric and labels. `now` is its clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.url = ""
        self.now = now
        self.series: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        self.asked: list[str] = []
        self.tokens: list[str | None] = []
        self.status = 200
        self.body: bytes | None = None
        self.wait_seconds = 0.0
        self.late_seconds = 0.0
        self.fails_after: int | None = None

    def use(self, pod: str, *values: float, namespace: str = "team-a", name: str = UTIL, **labels: str) -> None:
        """Set the utilization of the GPUs of a pod, as DCGM's exporter shows it."""
        rest = [row for row in self.series.get(name, []) if row[0]["pod"] != pod]
        self.series[name] = rest + [
            (
                {
                    "job": "dcgm",
                    "namespace": namespace,
                    "pod": pod,
                    "container": "main",
                    "UUID": f"GPU-{namespace}-{pod}-{number}",
                    "gpu": str(number),
                    "Hostname": "n0",
                    **labels,
                },
                value,
            )
            for number, value in enumerate(values)
        ]

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["FakePrometheus"]:
        runner = web.ServerRunner(web.Server(self._answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        assert request.path == "/api/v1/query"
        query = (await request.post())["query"]
        self.asked.append(str(query))
        self.tokens.append(request.headers.get("Authorization"))
        if self.wait_seconds:
            await asyncio.sleep(self.wait_seconds)
        if self.fails_after is not None and len(self.asked) > self.fails_after:
            return web.json_response({"status": "error"}, status=500)
        if self.body is not None:
            return web.Response(body=self.body, status=self.status)
        if self.status != 200:
            return web.json_response({"status": "error", "error": "no such thing"}, status=self.status)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": self._found(query)}})

    def _found(self, query: Any) -> list[dict[str, Any]]:
        asked = QUERY.fullmatch(query)
        assert asked is not None, query
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', asked["matchers"]))
        by, at = asked["by"].split(", "), self.now() - self.late_seconds
        highest: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in self.series.get(asked["name"], ()):
            if wanted.items() <= labels.items():
                key = tuple((each, labels[each]) for each in by if labels.get(each))
                highest[key] = max(value, highest.get(key, value))
        return [{"metric": dict(key), "value": [at, f"{value:g}"]} for key, value in highest.items()]
