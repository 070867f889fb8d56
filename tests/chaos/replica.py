"""`fairgate` as the chaos tests run it: with a clock that is wrong, or with shorter waits than in production.

    python -m tests.chaos.replica CLOCK LEASE UNSEEN serve --policy …

CLOCK is by how many seconds the clock is off, LEASE how long another replica's Lease must stand unchanged before it is
taken over, UNSEEN how long a charge waits for its pod: whole seconds, 0 for production's.
"""

import runpy
import sys
import time

import time_machine

from webhook.cluster.ledger import ledger
from webhook.cluster.writes import lease


def shorten_waits(lease_seconds: int, unseen_seconds: int) -> None:
    """Take the place of production's waits, before what uses them is imported."""
    if lease_seconds:
        lease.DEFAULT_TIMING = lease.Timing(lease=lease_seconds, renew_deadline=lease_seconds * 2 / 3, retry=1.0)
    if unseen_seconds:
        ledger.ApiLedger.drop_orphans.__kwdefaults__["unseen_seconds"] = unseen_seconds


if __name__ == "__main__":
    clock, *waits = (int(sys.argv.pop(1)) for _ in range(3))
    shorten_waits(*waits)
    if clock:
        time_machine.travel(time.time() + clock, tick=True).start()
    sys.argv[0] = "fairgate"
    runpy.run_module("webhook", run_name="__main__")
