"""`fairgate` whose clock a signal moves: five minutes ahead with SIGUSR1, five minutes back with SIGUSR2.

    python -m tests.chaos.day.process serve --policy …

Everything that Python reads of the time of day moves; the monotonic clock stays, as on a machine whose clock is set.
"""

import runpy
import signal
import sys
import time

import time_machine

SECONDS = 300
BY_SIGNAL = {signal.SIGUSR1: SECONDS, signal.SIGUSR2: -SECONDS}


def move(number: int, _frame: object) -> None:
    """Set the clock."""
    time_machine.travel(time.time() + BY_SIGNAL[signal.Signals(number)], tick=True).start()


if __name__ == "__main__":
    for each in BY_SIGNAL:
        signal.signal(each, move)
    sys.argv[0] = "fairgate"
    runpy.run_module("webhook", run_name="__main__")
