"""Signals, to a real process."""

import asyncio
import json
import signal
import ssl
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.server.harness import REVIEW_HEADERS

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def process(folder, *, drain_seconds):
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "tests.server.process", str(folder), str(drain_seconds)),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield child, json.loads(await child.stderr.readline())["url"]
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_finishes_what_is_in_flight_and_exits_with_success(tmp_path, number):
    async with process(tmp_path, drain_seconds=0) as (child, url):
        tls = ssl.create_default_context(cafile=tmp_path / "certs" / "ca.crt")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            asked = asyncio.create_task(session.post(f"{url}/mutate", data=b"{}", headers=REVIEW_HEADERS))
            assert json.loads(await child.stderr.readline())["event"] == "reviewing"
            child.send_signal(number)
            async with await asked as response:
                assert (response.status, await response.json()) == (200, {"length": 2})
        log = (await child.stderr.read()).decode()
        assert await child.wait() == 0, log
        events = [json.loads(line)["event"] for line in log.splitlines()]
        assert sorted(events) == ["decision", "draining", "stopped"]


async def test_a_second_signal_exits_at_once(tmp_path):
    async with process(tmp_path, drain_seconds=60) as (child, _):
        child.terminate()
        assert json.loads(await child.stderr.readline())["event"] == "draining"
        child.terminate()
        async with asyncio.timeout(30):
            assert await child.wait() == 128 + signal.SIGTERM
        assert json.loads(await child.stderr.readline())["event"] == "stopping at once"
