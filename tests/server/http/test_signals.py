"""Signals, to a real process."""

import asyncio
import json
import signal
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests import forks
from tests.server.support.harness import REVIEW_HEADERS, read_log, until


@asynccontextmanager
async def process(folder, *, drain_seconds):
    log = folder / "log"
    child = forks.start("tests.server.support.process", folder, drain_seconds, out=folder / "out", err=log)
    try:
        await until(lambda: "listening" in events(folder) or child.poll() is not None)
        yield child, json.loads(log.read_text().splitlines()[0])["url"]
    finally:
        child.kill()


def events(folder):
    return [line["event"] for line in read_log(folder)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_finishes_what_is_in_flight_and_exits_with_success(tmp_path, number):
    async with process(tmp_path, drain_seconds=0) as (child, url):
        tls = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.crt")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            asked = asyncio.create_task(session.post(f"{url}/validate", data=b"{}", headers=REVIEW_HEADERS))
            await until(lambda: "reviewing" in events(tmp_path))
            child.send_signal(number)
            async with await asked as response:
                assert (response.status, await response.json()) == (200, {"length": 2})
        assert child.wait(timeout=30) == 0, events(tmp_path)
        assert sorted(events(tmp_path)) == ["decision", "draining", "listening", "reviewing", "stopped"]


async def test_a_second_signal_exits_at_once(tmp_path):
    async with process(tmp_path, drain_seconds=60) as (child, _):
        child.send_signal(signal.SIGTERM)
        await until(lambda: "draining" in events(tmp_path))
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 128 + signal.SIGTERM
        assert events(tmp_path)[-1] == "stopping at once"
