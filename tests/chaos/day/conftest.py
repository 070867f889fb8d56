"""A minute for each failure: only `make chaos-day` runs them, which names them in `CHAOS_DAY`."""

import os

collect_ignore = [] if "CHAOS_DAY" in os.environ else ["test_day.py"]
