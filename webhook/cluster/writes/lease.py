"""Leader election by a Lease, as in client-go: at most one of several processes runs a task at a time.

No two clocks are compared. A follower takes the Lease only after its record stayed unchanged for the whole lease
duration on the follower's own monotonic clock; the leader stops its task sooner than that after its last confirmed
renewal, counted from before the request was sent. So a wall clock that is wrong by minutes does no harm.
"""

import asyncio
import logging
import random
import secrets
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from webhook.cluster.api.client import JSON, MERGE_PATCH, ApiConnection, ApiError, ClusterError
from webhook.kube.objects.events import LeaseRecord, StoredLease, lease_patch, micro_time, new_lease, read_lease

_log: Final = logging.getLogger("webhook.cluster.writes.lease")
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations of an election, in seconds; client-go's defaults."""

    lease: int = 15
    """How long a record must stay unchanged before another process takes over; whole seconds, as in the API."""
    renew_deadline: float = 10.0
    """How long after its last confirmed renewal a leader acts. Below `lease` by the time that cancelling takes."""
    retry: float = 2.0
    """Delay between two attempts, of a leader to renew and of the others to take over …"""
    jitter: float = 1.2
    """… to which the others add up to this share of it, so that they do not try at the same time."""
    release: float = 2.0
    """Timeout for releasing the Lease: the process is being stopped."""
    uniform: Callable[[float, float], float] = random.uniform


DEFAULT_TIMING: Final = Timing()
"""The timing of production."""


def lease_timing(lease_seconds: int) -> Timing:
    """Return the production timing, scaled to a Lease of `lease_seconds`."""
    share = lease_seconds / DEFAULT_TIMING.lease
    deadline, retry = DEFAULT_TIMING.renew_deadline * share, DEFAULT_TIMING.retry * share
    return Timing(lease=lease_seconds, renew_deadline=deadline, retry=retry)


def utc_now() -> datetime:
    """Return the wall clock's time, which is only shown to people, never compared."""
    return datetime.now(UTC)


def own_identity() -> str:
    """Return a unique identity that starts with the host name."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Lease:
    """One candidate of an election. Start `run` as a task; public attributes are read only.

    `terms` counts how often this candidate became leader. `problem` is why the last attempt failed, None if it did not.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing = DEFAULT_TIMING,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.identity = identity
        self.terms = 0
        self.problem: str | None = None
        self._connection = connection
        self._namespace = namespace
        self._name = name
        self._timing = timing
        self._clock = clock
        self._stored: StoredLease | None = None
        self._foreign_until = _NEVER  # loop time until which another holder's last record is valid
        self._confirmed_until = _NEVER  # loop time until which this process certainly leads

    @property
    def is_leading(self) -> bool:
        """Whether this process certainly leads now."""
        return self._now() < self._confirmed_until

    async def run(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the task while leading, until cancelled; then release the Lease at once.

        The task is cancelled as soon as leadership is no longer certain, and started again after the next win. A task
        that returns or raises ends the run in the same way.
        """
        try:
            while True:
                if not await self._acquire_or_renew():
                    await asyncio.sleep(self._timing.retry * (1 + self._timing.uniform(0, self._timing.jitter)))
                elif await self._lead(task):
                    return
        finally:
            await self._release()

    async def _lead(self, task: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run the task until leadership is lost (False) or the task is over (True)."""
        self.terms += 1
        work, renewal = asyncio.create_task(task()), asyncio.create_task(self._keep_renewing())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
            is_over = work.done()
        finally:
            self._confirmed_until = _NEVER
            work.cancel()
            renewal.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
        if is_over:
            work.result()
        elif not renewal.cancelled():
            renewal.result()
        return is_over

    async def _keep_renewing(self) -> None:
        """Renew until leadership is no longer certain."""
        while self.is_leading:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._confirmed_until):
                    await asyncio.sleep(self._timing.retry)
                    if not await self._acquire_or_renew() and not self._is_ours:
                        return

    @property
    def _is_ours(self) -> bool:
        return self._stored is not None and self._stored.record.holder == self.identity

    async def _acquire_or_renew(self) -> bool:
        """Acquire or renew the Lease, and return whether this process holds it; log a new failure once."""
        try:
            is_won = await self._try_acquire()
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                _log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self.problem = None
        return is_won

    async def _try_acquire(self) -> bool:
        # Twice: the second try succeeds after a renewal whose response was lost, and after the Lease was deleted.
        for _ in range(2):
            if not self._is_ours:
                await self._read()
            if not self._is_ours and self._now() < self._foreign_until:
                return False
            sent = self._now()
            if await self._write(self._next()):
                self._confirmed_until = sent + self._timing.renew_deadline
                return True
        return False

    def _next(self) -> LeaseRecord:
        now = micro_time(self._clock())
        before = self._stored.record if self._stored is not None else None
        if before is not None and before.holder == self.identity:
            return replace(before, duration_seconds=self._timing.lease, renewed_at=now)
        terms = before.transitions + 1 if before is not None else 0
        return LeaseRecord(self.identity, self._timing.lease, acquired_at=now, renewed_at=now, transitions=terms)

    async def _release(self) -> None:
        """Let another replica lead at once; if that fails, it waits for the lease to expire."""
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._timing.release):
                # Twice: the response to a renewal may have been lost by the cancellation that stops this process.
                for _ in range(2):
                    if self._stored is None or not self._is_ours:
                        return
                    free = replace(self._stored.record, holder="", duration_seconds=1)
                    if await self._write(free):
                        return

    async def _read(self) -> None:
        try:
            body = await self._send("GET", self._path, None, "get leases")
        except ApiError as error:
            if not error.is_missing:
                raise
            self._stored = None  # a deleted record stays valid for as long as an existing one
            return
        self._observe(body)

    async def _write(self, record: LeaseRecord) -> bool:
        """Replace the record that was read; False, after another read, if another process wrote first."""
        try:
            if self._stored is None:
                new = new_lease(record, namespace=self._namespace, name=self._name)
                body = await self._send("POST", self._path.rpartition("/")[0], new, "create leases")
            else:
                patch = lease_patch(record, version=self._stored.version)
                body = await self._send("PATCH", self._path, patch, "patch leases")
        except ApiError as error:
            if not (error.is_conflict or (error.is_missing and self._stored is not None)):
                raise
            await self._read()
            return False
        self._observe(body)
        return True

    def _observe(self, body: bytes) -> None:
        try:
            found = read_lease(body)
        except ValueError as cause:
            raise ClusterError(f"lease {self._namespace}/{self._name} cannot be read: {cause}") from cause
        if self._stored is None or found.record != self._stored.record:
            is_foreign = found.record.holder not in ("", self.identity)
            self._foreign_until = self._now() + found.record.duration_seconds if is_foreign else _NEVER
        self._stored = found

    async def _send(self, method: str, path: str, body: bytes | None, action: str) -> bytes:
        # Half of the deadline: after a silent connection there is time for an attempt on another one.
        seconds = self._timing.renew_deadline / 2
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        return await self._connection.send(
            method, path, body, action=action, content_type=content_type, seconds=seconds
        )

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{self._name}"

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
