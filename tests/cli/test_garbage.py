"""Garbage collection in a service: cycles go, and what stays is looked at a bounded number of times."""

import subprocess
import sys

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
from webhook.cli.garbage import YOUNG, leave_out_what_stays

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


OLD_CYCLES = """
import asyncio
import gc
from webhook.cli import garbage

garbage.LOOK_SECONDS, garbage.SPARE = 0.05, 10_000
garbage.leave_out_what_stays()
world = [[number] for number in range(20_000)]

async def main():
    task = asyncio.create_task(garbage.collect_what_was_left_out())
    before, left_out = gc.get_freeze_count(), []
    rings = [Ring() for _ in range(1_000)]
    gc.collect(1)
    rings.clear()
    await asyncio.sleep(0.3)
    print(Ring.alive == 1_000)  # too few to look at all for
    for _ in range(5):
        rings += [Ring() for _ in range(before)]
        gc.collect(1)
    rings.clear()
    alive = Ring.alive
    await asyncio.sleep(0.3)
    print(alive == 1_000 + 5 * before, Ring.alive == 0, gc.get_freeze_count() < 1.5 * before, task.done())

asyncio.run(main())
"""


def test_cycles_that_are_older_are_collected_once_what_is_left_out_has_doubled():
    done = subprocess.run(
        [sys.executable, "-c", RING + OLD_CYCLES], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "True", "True", "True", "False"]
