"""How long a pod runs by its annotation and its deadline: for likely starts, never for decisions."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from webhook.core.model.duration import parse_seconds
from webhook.core.model.run_time import MAX_SECONDS, NO_RUN_TIME, RunTime
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import shortened

_MAX_VALUE: Final = 64
_SHOWN: Final = 20
"""Characters of a value that is ignored: a warning has 120 in all."""
_EXPECTED: Final = f"write a duration such as 30m or 2h, of at most {MAX_SECONDS // 3600}h"


def stated_run_time(annotations: Mapping[str, str], deadline: int | None) -> RunTime:
    """Return what a pod's annotations and its own deadline, in seconds, say of its run."""
    text, limit = annotations.get(keys.RUN_TIME), annotations.get(keys.RUN_TIME_LIMIT)
    if text is None and limit is None and deadline is None:
        return NO_RUN_TIME
    deadlines = [each for each in (_seconds(limit or ""), deadline or 0) if 0 < each <= MAX_SECONDS]
    stated = _seconds(text or "")
    problem = ""
    if text is not None and not stated:
        problem = f"annotation {keys.RUN_TIME} {shortened(text, _SHOWN)!r} is ignored: {_EXPECTED}"
    return RunTime(stated, min(deadlines, default=0), problem)


def written_limit(seconds: int) -> str:
    """Return a deadline as the annotation of a pod template has it."""
    return f"{seconds}s"


def _seconds(text: str) -> int:
    """Return a run time; 0 where it is none, or too long."""
    return _parsed(text) if 0 < len(text) <= _MAX_VALUE else 0


@lru_cache(maxsize=1024)
def _parsed(text: str) -> int:
    try:
        found = parse_seconds(text)
    except ValueError:
        return 0
    return found if found <= MAX_SECONDS else 0
