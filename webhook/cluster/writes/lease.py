"""Leader election by a Lease, as client-go does it: one of several processes carries out a duty, and knows it does.

No two clocks are compared. Whoever does not lead takes the Lease only after its record has stood unchanged for the
whole lease on his own monotonic clock; whoever leads stops his duty sooner than that after the last renewal that he can
prove, counted from before it was sent. A wall clock that is wrong by minutes neither steals a Lease nor holds one.
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

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.kube.objects.lease import LeaseRecord, StoredLease, lease_patch, micro_time, new_lease, read_lease

_log: Final = logging.getLogger("webhook.cluster.writes.lease")
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How an election paces itself, in seconds; client-go's defaults."""

    lease: int = 15
    """How long a record must stand unchanged before others take over; whole seconds, as the API has them."""
    renew_deadline: float = 10.0
    """How long after its last proven renewal a leader still acts. Below `lease` by what a cancelled duty needs."""
    retry: float = 2.0
    """Rest between two tries, of a leader to renew and of the others to take over …"""
    jitter: float = 1.2
    """… for which the others add up to this share of it, so that they do not come together."""
    release: float = 2.0
    """How long giving the Lease back may take: the process is being stopped."""
    uniform: Callable[[float, float], float] = random.uniform
    """Source of jitter."""


DEFAULT_TIMING: Final = Timing()
"""The timing of production."""


def lease_timing(lease_seconds: int) -> Timing:
    """Scale the timing of production to a Lease of so many seconds."""
    share = lease_seconds / DEFAULT_TIMING.lease
    deadline, retry = DEFAULT_TIMING.renew_deadline * share, DEFAULT_TIMING.retry * share
    return Timing(lease=lease_seconds, renew_deadline=deadline, retry=retry)


def utc_now() -> datetime:
    """Read the wall clock, which is only ever written down for people."""
    return datetime.now(UTC)


def own_identity() -> str:
    """Make a name that no other process has, and that says where this one runs."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Lease:
    """One candidate of an election. Start `run` as a task; everything public is to be read only.

    `terms` counts how often this candidate began to lead. `problem` is why the last try failed, None where it did not.
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
        self._foreign_until = _NEVER  # until when somebody else's last record must be respected
        self._proven_until = _NEVER  # until when we lead, whatever happens

    @property
    def is_leading(self) -> bool:
        """Tell whether this process leads for sure, at this moment."""
        return self._now() < self._proven_until

    async def run(self, duty: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry out the duty while leading, until cancelled; the Lease is then given back at once.

        The duty is cancelled the moment leadership cannot be proven any longer, and started anew when it is won again.
        One that ends by itself, or fails, ends the run in the same way.
        """
        try:
            while True:
                if not await self._claim():
                    await asyncio.sleep(self._timing.retry * (1 + self._timing.uniform(0, self._timing.jitter)))
                elif await self._lead(duty):
                    return
        finally:
            await self._release()

    async def _lead(self, duty: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Work until the lead is lost (False) or the duty is over (True)."""
        self.terms += 1
        work, keep = asyncio.create_task(duty()), asyncio.create_task(self._keep())
        try:
            await asyncio.wait((work, keep), return_when=asyncio.FIRST_COMPLETED)
            is_over = work.done()
        finally:
            self._proven_until = _NEVER
            work.cancel()
            keep.cancel()
            await asyncio.gather(work, keep, return_exceptions=True)
        if is_over:
            work.result()
        elif not keep.cancelled():
            keep.result()
        return is_over

    async def _keep(self) -> None:
        """Renew until the lead cannot be proven any longer."""
        while self.is_leading:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._proven_until):
                    await asyncio.sleep(self._timing.retry)
                    if not await self._claim() and not self._is_ours:
                        return

    @property
    def _is_ours(self) -> bool:
        return self._stored is not None and self._stored.record.holder == self.identity

    async def _claim(self) -> bool:
        """Take or renew the Lease; a failure is remembered and told once."""
        try:
            is_won = await self._take()
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                _log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self.problem = None
        return is_won

    async def _take(self) -> bool:
        # Twice: the second try succeeds after a renewal whose answer was lost, and after the Lease was deleted.
        for _ in range(2):
            if not self._is_ours:
                await self._look()
            if not self._is_ours and self._now() < self._foreign_until:
                return False
            asked = self._now()
            if await self._write(self._next()):
                self._proven_until = asked + self._timing.renew_deadline
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
        """Let the next one lead at once; if that fails, he waits for the lease to end."""
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(self._timing.release):
                # Twice: the answer to a renewal may have been lost by the cancellation that stops us.
                for _ in range(2):
                    if self._stored is None or not self._is_ours:
                        return
                    free = replace(self._stored.record, holder="", duration_seconds=1)
                    if await self._write(free):
                        return

    async def _look(self) -> None:
        try:
            body = await self._send("GET", self._path, None, "get leases")
        except ApiError as error:
            if not error.is_missing:
                raise
            self._stored = None  # a record that vanished is respected for as long as one that stands
            return
        self._observe(body)

    async def _write(self, record: LeaseRecord) -> bool:
        """Write a record over the one we know; where somebody was faster, look what he wrote and say False."""
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
            await self._look()
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
        # Half of the deadline: after a connection that fell silent there is time for a try on another one.
        seconds = self._timing.renew_deadline / 2
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return await self._connection.send(method, path, body, action=action, content_type=kind, seconds=seconds)

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{self._name}"

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
