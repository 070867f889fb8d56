"""A server in a process of its own, to be stopped by signals.

Usage: `python -m tests.server.support.process FOLDER DRAIN_SECONDS`.
"""

import asyncio
import sys
import warnings
from pathlib import Path

import uvloop

from certs.serving import CertFolder, Reloader
from tests.server.support.harness import FakeReviewer, settings_for
from webhook.http.server import stop_signals
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.http.app import App, serve
from webhook.server.http.handlers import Readiness


async def main(folder: Path, drain_seconds: float) -> None:
    settings = settings_for(folder, drain_seconds=drain_seconds)
    logs = open_logs(LogFormat.JSON)
    reviewer = FakeReviewer()
    with stop_signals(logs.stop_at_once) as stop:

        async def work() -> None:
            logs.event.info("reviewing")
            await stop.wait()
            await asyncio.sleep(0.05)  # the server goes on with its stop meanwhile

        reviewer.work = work
        context = Reloader(CertFolder(settings.certs)).context
        await serve(
            App(reviewer, Readiness(), Metrics(), logs, why_not_synced=lambda: None), settings, context, stop=stop
        )


if __name__ == "__main__":
    warnings.simplefilter("error")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(sys.argv[1]), float(sys.argv[2])))
