"""Garbage collection in a service: cycles go, and what stays is looked at a bounded number of times."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # each starts an interpreter

RING = """
class Ring:
    alive = 0
    def __init__(self):
        self.ring = self
        Ring.alive += 1
    def __del__(self):
        Ring.alive -= 1
"""

SCRIPT = """
import gc
from webhook.cli.options import YOUNG, leave_out_what_stays

leave_out_what_stays()
leave_out_what_stays()
largest = 0

def look(phase, info):
    global largest
    if phase == "start":
        largest = max(largest, sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

gc.callbacks.append(look)
before = gc.get_freeze_count()
world = [{"pod": [number]} for number in range(30 * YOUNG)]
for _ in range(6 * YOUNG):
    Ring()
print(gc.get_freeze_count() - before > 50 * YOUNG, largest <= 5 * YOUNG, Ring.alive <= 2 * YOUNG)
"""


def test_what_stays_is_left_out_and_young_cycles_are_collected():
    done = subprocess.run([sys.executable, "-c", RING + SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True"] * 3


REPLACED = """
import asyncio
import gc
from webhook.cli import options as garbage

garbage.LOOK_SECONDS = 0
garbage.leave_out_what_stays()
world = [[number] for number in range(20_000)]
gc.collect()
gc.freeze()
largest = 0

def look(phase, info):
    global largest
    if phase == "start":
        largest = max(largest, sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

async def main():
    task = asyncio.create_task(garbage.collect_garbage())
    gc.callbacks.append(look)
    for turn in range(400):
        for number in range(500):
            world[(turn * 500 + number) % len(world)] = [number]
        await asyncio.sleep(0)
    gc.collect(1)
    print(largest < 3_000, task.done())

asyncio.run(main())
"""


def test_young_objects_are_collected_where_new_ones_replace_old_ones():
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "False"]


OLD_CYCLES = """
import asyncio
import gc
import time
from webhook.cli import options as garbage

garbage.LOOK_SECONDS, garbage._LOOKS, garbage.SPARE_KIB, garbage.QUIET_SHARE = 0.002, 10, 0, QUIET_SHARE
garbage.leave_out_what_stays()

async def main():
    task = asyncio.create_task(garbage.collect_garbage())
    await asyncio.sleep(0)
    rings = [Ring() for _ in range(1_000)]
    gc.collect(1)
    rings.clear()
    await asyncio.sleep(0.3)
    few = Ring.alive
    rings += [Ring() for _ in range(1_000)]
    for ring in rings:
        ring.text = bytearray(200_000)
    del ring
    gc.collect(1)
    rings.clear()
    end = time.monotonic() + SECONDS
    while Ring.alive and time.monotonic() < end:
        await asyncio.sleep(0.05)
    print(few, Ring.alive, task.done())

asyncio.run(main())
"""


def old_cycles(*, quiet_share, seconds):
    script = f"QUIET_SHARE, SECONDS = {quiet_share}, {seconds}\n" + RING + OLD_CYCLES
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_cycles_that_are_older_are_collected_once_memory_has_doubled():
    """However large the process is that started it."""
    ballast = bytearray(1 << 28)
    ballast[::4096] = b"x" * (len(ballast) // 4096)
    assert old_cycles(quiet_share=100, seconds=30) == ["1000", "0", "False"]


def test_a_busy_process_does_not_collect_all():
    assert old_cycles(quiet_share=-1, seconds=1) == ["1000", "2000", "False"]
