"""How many examples a property gets.

Every run uses different ones, so that a few in each run find over many runs what many in one run would. FUZZ_TIMES as
many: `make test-long` takes twenty times as many at once, `make test-fast` a third.
"""

import os
from typing import Any

from hypothesis import HealthCheck, settings

TIMES = float(os.environ.get("FUZZ_TIMES", "1"))
USUAL = 35


def examples(count: int = USUAL, **more: Any) -> settings:
    """So many examples, however long they take: a shared machine may stall for a second in any of them."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=max(1, round(count * TIMES)), deadline=None, suppress_health_check=checks, **more)
