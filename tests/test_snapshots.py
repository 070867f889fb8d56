"""Work on a snapshot: its own process, bounded in time, in number, in what it returns, and without effect here."""

import asyncio
import os
from pathlib import Path

import pytest

from webhook import files
from webhook.files import MOST_BYTES, WAITING, SnapshotError, Snapshots


async def test_work_sees_the_state_and_changes_nothing_here():
    state = {"pods": 1}

    def work():
        state["pods"] += 1
        return str((state["pods"], os.getpid())).encode()

    seen, pid = eval(await Snapshots().run(work))
    assert (seen, state["pods"]) == (2, 1)
    assert pid != os.getpid()


@pytest.mark.slow
async def test_work_without_end_is_ended_while_others_go_on():
    def forever():
        while True:
            pass

    ticks = 0
    running = asyncio.create_task(Snapshots(seconds=1).run(forever))
    while not running.done():
        ticks += 1
        await asyncio.sleep(0.01)
    with pytest.raises(SnapshotError, match="too long"):
        await running
    assert ticks > 20


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: b"x" * (MOST_BYTES + 1), "too large"),
        (lambda: os._exit(3), "ended without one"),
        (lambda: {}["missing"], "this is a bug in Fairgate"),
        (lambda: bytes(8 << 30), "too much memory"),
    ],
)
async def test_a_failure_has_its_reason_and_ends_no_more_than_its_process(work, why):
    with pytest.raises(SnapshotError, match=why):
        await Snapshots().run(work)


@pytest.mark.slow
async def test_more_than_may_wait_are_refused_and_all_others_answered(monkeypatch):
    monkeypatch.setattr(files, "AT_ONCE", 2)
    shared = Snapshots()
    asked = [asyncio.create_task(shared.run(lambda: b"ok")) for _ in range(WAITING + 5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [each for each in found if each == b"ok"] == [b"ok"] * WAITING
    assert sum(isinstance(each, SnapshotError) for each in found) == 5


def children():
    """The processes that this one started, and that are not gone."""
    return {pid for each in Path("/proc/self/task").glob("*/children") for pid in each.read_text().split()}


async def test_no_process_is_left():
    shared, before = Snapshots(seconds=1), children()
    cancelled = asyncio.create_task(shared.run(lambda: bytes(asyncio.run(asyncio.sleep(60)) or b"")))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert children() <= before
    assert await shared.run(lambda: b"still works") == b"still works"
