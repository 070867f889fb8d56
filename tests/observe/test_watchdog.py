"""A blocked event loop is counted, and logged with its stack."""

import asyncio
import json
import os
import re
import time

from tests.server.support.harness import until
from webhook.observe.logs import STALL_LOGGED_SECONDS, LogFormat, Watchdog, open_logs
from webhook.observe.processes import Component, ProcessMetrics


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


async def test_the_console_format_has_the_same(tmp_path):
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    logs = open_logs(LogFormat.CONSOLE, fd=fd)
    watching = asyncio.create_task(Watchdog(ProcessMetrics(Component.SERVER), logs).run())
    await asyncio.sleep(0)
    spin(0.3)
    await until(lambda: "event loop blocked" in (logs.flush() or (tmp_path / "log").read_text()))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    os.close(fd)


async def test_a_blocked_loop_is_counted_and_logged_with_its_stack(tmp_path):
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    metrics, logs = ProcessMetrics(Component.SERVER), open_logs(LogFormat.JSON, fd=fd)
    watching = asyncio.create_task(Watchdog(metrics, logs).run())
    await asyncio.sleep(0)
    spin(0.3)
    held = 'fairgate_event_loop_held_seconds_count{by="other"} 1.0'
    await until(lambda: held in metrics.expose().body.decode())
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    logs.flush()
    line = next(line for line in map(json.loads, (tmp_path / "log").read_text().splitlines()) if "seconds" in line)
    assert line["event"] == "event loop blocked"
    assert line["seconds"] >= 0.2
    assert "test_watchdog.spin" in line["where"], line
    os.close(fd)


def stalled_seconds(metrics):
    found = re.search(r'held_seconds_sum{by="stall"} (\S+)', metrics.expose().body.decode())
    return float(found[1]) if found else 0.0


async def test_a_process_without_cpu_time_is_counted_and_only_a_long_pause_is_logged(tmp_path):
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    metrics, logs = ProcessMetrics(Component.SERVER), open_logs(LogFormat.JSON, fd=fd)
    watching = asyncio.create_task(Watchdog(metrics, logs).run())
    for seconds in (0.3, STALL_LOGGED_SECONDS + 0.3):
        await asyncio.sleep(0)
        before = stalled_seconds(metrics)
        time.sleep(seconds)  # noqa: ASYNC251 - as if the process were stopped
        await until(lambda least=before + seconds - 0.1: stalled_seconds(metrics) >= least)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    logs.flush()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["seconds"] >= STALL_LOGGED_SECONDS for line in lines if line["by"] == "stall"] == [True]
    os.close(fd)
