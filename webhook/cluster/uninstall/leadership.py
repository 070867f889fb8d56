"""Holds the Leases of servers and evictors, so that none of them leads while an uninstallation runs.

A leader renews with the version that it wrote last, so it notices at its next renewal, within two seconds, and stops
what only a leader does. If the uninstallation is killed, the Leases expire and the processes go on.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.uninstall.scope import Tempo
from webhook.kube.objects.lease import LeaseRecord, lease_patch, micro_time
from webhook.kube.registration.inventory import OwnedObject

_RENEWALS: Final = 4
"""Renewals in the time of a Lease."""


@asynccontextmanager
async def taken_over(connection: ApiConnection, leases: Iterable[OwnedObject], tempo: Tempo) -> AsyncIterator[None]:
    """Take these Leases from their holders, and hold them until the end of the block. Raises ClusterError."""
    held = list(leases)
    began = datetime.now(UTC)
    for lease in held:
        await _take(connection, lease, tempo, since=began)
    renewing = asyncio.create_task(_renew(connection, held, tempo, since=began))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _renew(connection: ApiConnection, leases: Iterable[OwnedObject], tempo: Tempo, *, since: datetime) -> None:
    held = list(leases)
    while True:
        await asyncio.sleep(tempo.lease_seconds / _RENEWALS)
        for lease in held:
            try:
                await _take(connection, lease, tempo, since=since)
            except ClusterError:  # the next renewal comes before the Lease expires
                continue


async def _take(connection: ApiConnection, lease: OwnedObject, tempo: Tempo, *, since: datetime) -> None:
    """Write this process as the holder in any case; a Lease that is gone needs no holder."""
    holder = f"{socket.gethostname()}_uninstall"
    now = micro_time(datetime.now(UTC))
    record = LeaseRecord(holder, tempo.lease_seconds, acquired_at=micro_time(since), renewed_at=now)
    try:
        await connection.send(
            "PATCH",
            lease.path,
            lease_patch(record, version=""),
            action="patch leases",
            content_type=MERGE_PATCH,
        )
    except ApiError as error:
        if not error.is_missing:
            raise
