"""Garbage collection in a service: cycles go, and what stays is looked at a bounded number of times."""

import subprocess
import sys

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

class Ring:
    alive = 0
    def __init__(self):
        self.ring = self
        Ring.alive += 1
    def __del__(self):
        Ring.alive -= 1

gc.callbacks.append(look)
before = gc.get_freeze_count()
world = [{"pod": [number]} for number in range(30 * YOUNG)]
for _ in range(6 * YOUNG):
    Ring()
print(gc.get_freeze_count() - before > 50 * YOUNG, largest <= 5 * YOUNG, Ring.alive <= 2 * YOUNG)
"""


def test_what_stays_is_left_out_and_young_cycles_are_collected():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True"] * 3
