"""How many examples a property gets.

Every run uses different ones, so that a few in each run find over many runs what many in one run would; `make
test-long` uses FUZZ_TIMES as many at once.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
USUAL = 35


def examples(count: int = USUAL, **more: Any) -> settings:
    """So many examples, however long they take: a shared machine may stall for a second in any of them."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count * TIMES, deadline=None, suppress_health_check=checks, **more)
