"""A real server on a real port over verified TLS, around a small reviewer of its own."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from certs.serving import CertFolder, Reloader
from tests.cluster.support.stores import until
from webhook.core.model.reasons import Code, Reason
from webhook.http.connections import Bounds
from webhook.observe.logs import LogFormat, Logs, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.http.app import App, serve
from webhook.server.http.handlers import Readiness
from webhook.server.http.replies import check_caller, request_certificates
from webhook.server.review.verdicts import Answer, Record
from webhook.server.settings import BOUNDS, FileWorld, ServerSettings, parse_address

RECORD = Record(
    operation="CREATE",
    namespace="vision",
    name="train-0",
    owner="Job/train",
    uid="705ab4f5",
    pod_uid="9f1c",
    user="ada",
    dry_run=False,
    outcome="admit",
    reason=Reason(Code.WITHIN_SHARE, "uses 3 of 20 GPUs"),
    team="vision",
    tier="guaranteed",
    gpus=3,
    nodes=("node-1",),
    policy="abc123",
)
REVIEW_HEADERS = {"Content-Type": "application/json"}


class FakeReviewer:
    """Answers every body with its length, after `work`, which may raise, or wait if it is for /validate.

    `why_not_synced` delays all of it.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.seconds_left: list[float] = []  # of calls of /validate
        self.record = RECORD
        self.work: Callable[[], object] = lambda: None
        self.why_not_synced: str | None = None
        self.padding = ""

    def mutate(self, body: bytes) -> Answer:
        self.calls.append("mutate")
        assert self.work() is None, "only /validate may wait"
        return self._answer(body)

    async def validate(self, body: bytes, *, deadline: float, is_gone: Callable[[], bool]) -> Answer:
        self.is_gone = is_gone
        self.calls.append("validate")
        self.seconds_left.append(deadline - asyncio.get_running_loop().time())
        waiting = self.work()
        if waiting is not None:
            await waiting
        return self._answer(body)

    def workloads(self, body: bytes) -> Answer:
        self.calls.append("workloads")
        return self._answer(body)

    claims = jobs = gangs = workloads

    def _answer(self, body: bytes) -> Answer:
        answer = {"length": len(body), **({"padding": self.padding} if self.padding else {})}
        return Answer(body=json.dumps(answer).encode(), record=self.record)


def settings_for(folder: Path, *, listen: str = "127.0.0.1:0", drain_seconds: float = 0.0) -> ServerSettings:
    return ServerSettings(
        policy=folder / "policies",
        world=FileWorld(folder / "world.yaml"),
        listen=parse_address(listen),
        certs=folder / "certs",
        drain_seconds=drain_seconds,
    )


@dataclass
class Running:
    """A server that runs, and what a test may do with it."""

    folder: Path
    url: str
    reviewer: FakeReviewer
    readiness: Readiness
    metrics: Metrics
    logs: Logs
    reloader: Reloader
    stop: asyncio.Event
    serving: "asyncio.Task[None]"
    tls: ssl.SSLContext
    session: aiohttp.ClientSession
    open_writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def lines(self, event: str) -> list[dict[str, object]]:
        self.logs.flush()
        return [line for line in read_log(self.folder) if line["event"] == event]

    async def review(self, path: str = "/mutate", data: object = b"{}", **kwargs: object) -> "Reply":
        return await self.ask("POST", path, data=data, headers=REVIEW_HEADERS, **kwargs)

    async def ask(self, method: str, path: str, **kwargs: object) -> "Reply":
        async with self.session.request(method, self.url + path, **kwargs) as response:
            return Reply(response.status, dict(response.headers), await response.text())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        self.open_writers.append(writer)
        return reader, writer


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> dict[str, object]:
        assert self.headers["Content-Type"] == "application/json"
        return json.loads(self.text)


def read_log(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log").read_text().split("\n") if line]


@asynccontextmanager
async def running(
    folder: Path,
    *,
    drain_seconds: float = 0.0,
    listen: str = "127.0.0.1:0",
    client_ca: Path | None = None,
    bounds: Bounds = BOUNDS,
) -> AsyncIterator[Running]:
    fd = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    settings = settings_for(folder, listen=listen, drain_seconds=drain_seconds)
    reviewer, readiness, metrics, stop = FakeReviewer(), Readiness(), Metrics(), asyncio.Event()
    logs = open_logs(LogFormat.JSON, fd=fd)
    reloader = Reloader(CertFolder(settings.certs, terms=settings.certificate_terms))
    check = None if client_ca is None else check_caller
    if client_ca is not None:
        request_certificates(reloader.context, client_ca)
    app = App(reviewer, readiness, metrics, logs, why_not_synced=lambda: reviewer.why_not_synced, check_caller=check)
    serving = asyncio.create_task(serve(app, settings, reloader.context, stop=stop, bounds=bounds))
    tls = ssl.create_default_context(cafile=settings.certs / "ca.crt")
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        url = await _listening(folder, serving)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            server = Running(folder, url, reviewer, readiness, metrics, logs, reloader, stop, serving, tls, session)
            yield server
            for writer in server.open_writers:
                writer.close()
    finally:
        stop.set()
        await serving
        logs.flush()
        os.close(fd)


async def _listening(folder: Path, serving: "asyncio.Task[None]") -> str:
    await until(lambda: serving.done() or (folder / "log").stat().st_size)
    if serving.done():
        await serving
    (line,) = read_log(folder)
    return str(line["url"])


def record_with(**changes: object) -> Record:
    return RECORD._replace(**changes)
