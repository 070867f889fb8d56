"""Clients that create a pod again and again, one with a GPU and one without, and note every attempt."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.chaos.day.installation import OWNER
from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod

PAUSE_SECONDS = 0.4
COMPLETES, RUNS_FOR = {"fairgate.test/completes": "true"}, {"fairgate.test/runs-for": "500ms"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One creation: when it began and ended by the monotonic clock, and why it failed, "" if it did not."""

    began: float
    ended: float
    why: str


@dataclass(slots=True)
class Attempts:
    """All attempts of one client, in order."""

    prefix: str
    gpus: int
    made: list[Attempt] = field(default_factory=list)

    def seconds_until_created(self, since: float) -> float:
        """Seconds from a time until the end of the first creation that began then or later, and succeeded."""
        return next(each.ended for each in self.made if each.began >= since and not each.why) - since

    def longest_gap(self, since: float) -> float:
        """The longest time since then without a success."""
        times = [since, *(each.ended for each in self.made if each.ended > since and not each.why)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def failures(self, since: float) -> list[str]:
        """Why attempts failed that began since then."""
        return [each.why for each in self.made if each.began >= since and each.why]

    def has_created(self, since: float) -> bool:
        """Whether an attempt that began since then succeeded."""
        return any(each.began >= since and not each.why for each in self.made)


@contextmanager
def attempting(cluster: ControlPlane, attempts: Attempts) -> Iterator[None]:
    """Create pods until the end of the block; each ends by itself and is deleted."""
    stop, api = threading.Event(), Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)

    def run() -> None:
        for number in itertools.count():
            name = f"{attempts.prefix}-{number}"
            began = time.monotonic()
            why = _create(api, name, attempts.gpus)
            attempts.made.append(Attempt(began, time.monotonic(), why))
            if not why:
                with suppress(ApiError, OSError, http.client.HTTPException):
                    api.delete(f"/api/v1/namespaces/{OWNER}/pods/{name}")
            if stop.wait(PAUSE_SECONDS):
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        api.close()


def _create(api: Api, name: str, gpus: int) -> str:
    """Create a pod; return why that failed, or ""."""
    body = pod(name, gpus=gpus, cpu="100m", memory="64Mi", labels=COMPLETES, annotations=RUNS_FOR)
    try:
        api.create(f"/api/v1/namespaces/{OWNER}/pods", body)
    except ApiError as error:
        return f"{error.status} {error.message}"
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    return ""
