"""Waits for a state of a cluster, with an error that reports how far it got."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import TypeVar

from tests.control_plane.api import ApiError

T = TypeVar("T")

POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.25
"""Of a long wait: most looks list objects, and the API server shares its cores with what is waited for."""


def wait_for(
    predicate: Callable[[], T],
    *,
    what: str,
    timeout: float = 120,
    poll: float = POLL_SECONDS,
    describe: Callable[[], str] = str,
) -> T:
    """Call `predicate` until it returns something true, and return that; `poll` is the first pause between two calls.

    A failed assertion, a missing key or an answer of the API server that is an error counts as "not yet". When the time
    is over, the AssertionError has the awaited state, the last value, and the text of `describe`.
    """
    deadline, pause = time.monotonic() + timeout, poll
    while True:
        try:
            seen: object = predicate()
            if seen:
                return seen  # type: ignore[return-value]  # it is what the predicate returned
        except (AssertionError, LookupError, ApiError, OSError, http.client.HTTPException) as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout:g} s still not: {what}\nlast seen: {seen!r}\n{describe()}")
        time.sleep(pause)
        pause = min(1.1 * pause, LONGEST_POLL_SECONDS)
