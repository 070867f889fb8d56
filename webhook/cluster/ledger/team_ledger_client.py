"""One team's TeamLedger on the API: read, write, delete, and the meaning of failed writes."""

import json
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, RestoredError
from webhook.cluster.api.live_pod import read_live_pod
from webhook.core.explain.team_rows import DepartmentRow, TeamRow
from webhook.core.model.names import TeamName
from webhook.core.quota.in_flight import ENDED, UNSEEN, Alive, Evidence, InFlightCharge, LedgerRecord
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
        """Read the pod of a charge: alive, or ended, which includes a missing one; unseen while it waits in line."""
        found = await read_live_pod(self.connection, flight.pod)
        if found is not None and found.uid == flight.pod.uid and found.is_queued:
            return UNSEEN  # it is charged for its release, which the leader completes or withdraws
        is_there = found is not None and found.uid == flight.pod.uid and not found.has_ended
        return Alive(found.version) if found is not None and is_there else ENDED

    @property
    def _path(self) -> str:
        return f"{PATH}/{object_name(self.team)}"
