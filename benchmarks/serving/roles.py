"""Processes of serve.py: the servers for comparison, and a client for machines without wrk."""

import asyncio
import json
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from certs.serving import CertFolder, Reloader
from webhook.core.model.reasons import Code, Reason
from webhook.http.server import stop_signals
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.http.app import App, serve
from webhook.server.http.handlers import Readiness
from webhook.server.review.verdicts import Answer, Record
from webhook.server.settings import Address, FileWorld, ServerSettings

PATH = "/mutate?timeout=10s"
FIXED_ANSWER = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": True, "patchType": "JSONPatch", "patch": "W10=" * 200},
    }
).encode()


async def run_bare(certs: Path) -> None:
    """Serve the fixed answer as simply as aiohttp allows; print the URL."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=FIXED_ANSWER, content_type="application/json")

    app = web.Application(client_max_size=8 * 1024**2)
    app.router.add_post("/mutate", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=Reloader(CertFolder(certs)).context).start()
    print(json.dumps({"url": f"https://127.0.0.1:{runner.addresses[0][1]}"}), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


class FixedReviewer:
    """Answers like the bare handler, with the record of a decision."""

    def mutate(self, body: bytes) -> Answer:  # noqa: ARG002 (the protocol's)
        """Return the fixed answer."""
        return Answer(body=FIXED_ANSWER, record=_RECORD)

    workloads = claims = jobs = gangs = mutate

    async def validate(self, body: bytes, *, deadline: float, is_gone: Callable[[], bool]) -> Answer:  # noqa: ARG002
        """Return the fixed answer."""
        return Answer(body=FIXED_ANSWER, record=_RECORD)


_RECORD = Record(
    operation="CREATE",
    namespace="vision",
    name="train-worker-0",
    owner="PyTorchJob/train",
    uid="705ab4f5-6393-11e8-b7cc-42010a800002",
    pod_uid="",
    user="system:serviceaccount:kubeflow:training-operator",
    dry_run=False,
    outcome="admit",
    reason=Reason(Code.WITHIN_SHARE, "team vision uses 8 of 20 guaranteed GPUs"),
    team="vision",
    tier="guaranteed",
    gpus=1.0,
    nodes=("node-00001",),
    policy="0123456789abcdef",
)


async def run_shell(certs: Path) -> None:
    """Serve the fixed answer through Fairgate's own shell."""
    logs = open_logs(LogFormat.JSON)
    settings = ServerSettings(
        policy=certs, world=FileWorld(certs), listen=Address("127.0.0.1", 0), certs=certs, drain_seconds=0
    )
    with stop_signals(logs.stop_at_once) as stop:
        app = App(FixedReviewer(), Readiness(), Metrics(), logs, why_not_synced=lambda: None)
        await serve(app, settings, Reloader(CertFolder(certs)).context, stop=stop)


async def run_client(url: str, body: bytes, *, connections: int, seconds: float) -> None:
    """Load a server as wrk does, where wrk is not installed."""
    host, _, port = url.split("/")[2].partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request, taken, errors = head.encode() + body, [], 0
    end = time.perf_counter() + seconds

    async def connection() -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        while (begun := time.perf_counter()) < end:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            errors += not answer.startswith(b"http/1.1 200 ")
            taken.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    cuts = [1e6 * cut for cut in statistics.quantiles(taken, n=100)]
    result = {"requests": len(taken), "seconds": seconds, "p50_us": cuts[49], "p99_us": cuts[98], "errors": errors}
    print("RESULT", json.dumps(result))
