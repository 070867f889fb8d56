"""TeamLedger objects on the API, and the pace of writes.

One team's TeamLedger on the API: read, write, delete, and the meaning of failed writes.
"""

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, NamedTuple

from webhook.cluster.api.client import ApiConnection, ApiError, RestoredError
from webhook.cluster.api.requests import read_live_pod
from webhook.core.explain.team_rows import DepartmentRow, TeamRow
from webhook.core.model.amounts import TeamName
from webhook.core.quota.charges import ENDED, UNSEEN, Alive, Evidence, InFlightCharge, LedgerRecord
from webhook.kube.ledger.team_ledger import MAX_LEDGER_BYTES, RecordReader, TeamLedger, decode, encode, object_name
from webhook.kube.objects.keys import TEAM_LEDGER, TEAM_LEDGERS

PATH: Final = "/apis/fairgate.dev/v1alpha1/teamledgers"
WRITE_SECONDS: Final = 3.0
"""A write takes milliseconds; one without a response after this long is in doubt, and the object is read."""


_TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_ETCD_TOO_LARGE: Final = "request is too large"  # etcd's words, which kube-apiserver passes on with status 500


class Result(Enum):
    """The result of a write."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"
    REFUSED = "refused"


def result_of(error: Exception, *, is_new: bool) -> Result:
    """Return the result of a failed write: a status below 500 means that it was not carried out.

    404 on an update means that the object was deleted; 404 on a create, that the CustomResourceDefinition is missing.
    """
    if isinstance(error, ApiError) and (error.status == _TOO_LARGE or _ETCD_TOO_LARGE in str(error)):
        return Result.TOO_LARGE
    if not isinstance(error, ApiError) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Result.UNKNOWN
    return Result.CONFLICT if error.is_conflict or (error.is_missing and not is_new) else Result.REFUSED


@dataclass(slots=True)
class TeamLedgerClient:
    """Requests for one team's TeamLedger. All raise ClusterError, or ValueError for an object that is not readable.

    `size` is that of the object in bytes, as it was written here last.
    """

    connection: ApiConnection
    team: TeamName
    size: int = 0

    @property
    def is_half_full(self) -> bool:
        """Whether the object has more than half of the bytes that it may have."""
        return self.size > MAX_LEDGER_BYTES // 2

    async def write(
        self, record: LedgerRecord, row: TeamRow | DepartmentRow, *, version: int, reader: RecordReader
    ) -> TeamLedger:
        """Replace the object at the version that was read, by this reader, or create it if that is 0."""
        method, path, verb = ("PUT", self._path, "update") if version else ("POST", PATH, "create")
        body = encode(record, row, version=version, reader=reader)
        action = f"{verb} {TEAM_LEDGERS}"
        if len(body) > MAX_LEDGER_BYTES:
            raise ApiError(f"cannot {action}: {len(body):,} bytes are too many", status=_TOO_LARGE)
        found = decode(await self.connection.send(method, path, body, action=action, seconds=WRITE_SECONDS))
        self.size = len(body)
        return found

    async def read(self, *, known: int) -> TeamLedger | None:
        """Return the current object, None if there is none. Raises RestoredError if it is older than the known one."""
        try:
            body = await self.connection.send("GET", self._path, action=f"get {TEAM_LEDGERS}", seconds=WRITE_SECONDS)
        except ApiError as error:
            if not error.is_missing:
                raise
            return None
        found = decode(body)
        if found.version < known:
            raise RestoredError(f"{TEAM_LEDGER} {self.team} is", found=found.version, known=known)
        return found

    async def delete(self, *, version: int) -> None:
        """Delete the object, unless it was written since that version."""
        body = json.dumps({"preconditions": {"resourceVersion": str(version)}}).encode()
        try:
            await self.connection.send("DELETE", self._path, body, action=f"delete {TEAM_LEDGERS}")
        except ApiError as error:
            if not (error.is_conflict or error.is_missing):
                raise

    async def pod_evidence(self, flight: InFlightCharge) -> Evidence:
        """Read the pod of a charge: alive, or ended, which includes a missing one; unseen while it is queued."""
        found = await read_live_pod(self.connection, flight.pod)
        if found is not None and found.uid == flight.pod.uid and found.is_queued:
            return UNSEEN  # it is charged for its release, which the leader completes or withdraws
        is_there = found is not None and found.uid == flight.pod.uid and not found.has_ended
        return Alive(found.version) if found is not None and is_there else ENDED

    @property
    def _path(self) -> str:
        return f"{PATH}/{object_name(self.team)}"


# When this process last wrote a ledger: what others still send over an earlier version has no effect.


class WriteFence:
    """The last write that succeeded, by when it was sent. Times are of the event loop's clock."""

    def __init__(self) -> None:
        self._sent = float("-inf")
        self._written = asyncio.Event()  # set by the next write that succeeds

    def note(self, sent: float) -> None:
        """Note a write that succeeded."""
        self._sent = sent
        self._written.set()
        self._written = asyncio.Event()

    def is_after(self, time: float) -> bool:
        """Whether a write was sent since then, and succeeded."""
        return self._sent >= time

    async def wait(self, *, since: float, deadline: float) -> bool:
        """Wait for such a write until the deadline; return whether there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not self.is_after(since):
                    await self._written.wait()
        return self.is_after(since)


# Pauses between the writes of one ledger: to gather charges, for other replicas that write, and after failures.


_RIVAL_SECONDS: Final = 1.0
"""For how long to yield to another replica that wrote: two that write without pause starve a third for seconds (three
writers at 200 requests/s: p99 5 s before, well under a second with it)."""

_FAILURE_SECONDS: Final = 0.05
"""Backoff after the first failure; doubled for each further one …"""

_MAX_BACKOFF_SECONDS: Final = 1.0
"""… up to this: a waiting request has some four seconds."""


_FREQUENT: Final = 8
"""So many writes within a second, with _SHARED charges in each on average, are frequent: callers charge at once, and go
on with it. A caller who waits for each of its pods is never slowed down, nor are the first writes of a burst."""
_SHARED: Final = 1.5

_GATHERING_WRITES: Final = 8
_MAX_GATHERING_SECONDS: Final = 0.1
_ENOUGH: Final = 8
"""While writes are frequent, the next one begins so many durations of a write after the last one, at most this long, or
once so many requests wait. It saves a fifth of the writes; two of five without the last bound, but then the callers of
one busy team wait longer (docs/adr/0008-ledger.md)."""


class _Write(NamedTuple):
    ended_at: float
    charges: int


class WritePace:
    """Knows the last writes, and when another replica last wrote. Needs a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._write_seconds = 0.005  # duration of the last write
        self._writes: deque[_Write] = deque(maxlen=_FREQUENT)
        self._rival_at = float("-inf")

    def wrote(self, seconds: float, *, charges: int) -> None:
        """Note how long a write took, which ends now, and how many charges were in it."""
        self._write_seconds = min(seconds, WRITE_SECONDS / 30)
        self._writes.append(_Write(self._loop.time(), charges))

    async def gather(self, waiting: Callable[[], int]) -> None:
        """Pause before a write while writes are frequent, so that more requests share it; `waiting` counts those.

        Not while another replica writes: each then pauses for the other already.
        """
        now = self._loop.time()
        is_frequent = len(self._writes) == _FREQUENT and now - self._writes[0].ended_at <= 1.0
        if not is_frequent or self._has_rival(now):
            return
        if sum(write.charges for write in self._writes) <= _SHARED * _FREQUENT:
            return
        pause = min(_GATHERING_WRITES * self._write_seconds, _MAX_GATHERING_SECONDS)
        end = self._writes[-1].ended_at + pause
        while waiting() < _ENOUGH and (left := end - self._loop.time()) > 0:  # noqa: ASYNC110 - eight times at most
            await asyncio.sleep(min(left, pause / _GATHERING_WRITES))

    def saw_rival(self) -> None:
        """Note that another replica wrote."""
        self._rival_at = self._loop.time()

    async def yield_to_rival(self, writes: float) -> None:
        """Pause for up to so many write durations while another replica writes, too; longer after a success."""
        if self._has_rival(self._loop.time()):
            await asyncio.sleep(random.uniform(0.0, writes) * self._write_seconds)  # noqa: S311 - jitter

    def _has_rival(self, now: float) -> bool:
        return now - self._rival_at < _RIVAL_SECONDS

    async def back_off(self, failures: int) -> None:
        """Pause after so many failures in a row; at random, so that replicas do not retry together."""
        seconds = min(_MAX_BACKOFF_SECONDS, _FAILURE_SECONDS * 2.0 ** min(failures - 1, 16))
        await asyncio.sleep(random.uniform(0.5, 1.0) * seconds)  # noqa: S311 - jitter
