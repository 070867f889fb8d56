"""One team's object on the API: read, write, delete, and what an answer that is none means."""

import json
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.api.live_pod import fate_of
from webhook.core.explain.team_summary import Summary
from webhook.core.model.names import TeamName
from webhook.core.quota.in_flight import ENDED, Alive, Evidence, InFlightCharge, LedgerRecord
from webhook.kube.ledger.team_ledger import MAX_LEDGER_BYTES, TeamLedger, decode, encode, object_name
from webhook.kube.objects.keys import TEAM_LEDGERS

PATH: Final = "/apis/fairgate.dev/v1alpha1/teamledgers"
WRITE_SECONDS: Final = 3.0
"""A write takes milliseconds; one that has no answer after this long is in doubt, and its fate is looked up."""


_TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_ETCD_TOO_LARGE: Final = "request is too large"  # etcd's words, which kube-apiserver passes on with status 500


class Result(Enum):
    """What became of a write."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    UNKNOWN = "unknown"
    REFUSED = "refused"


def result_of(error: Exception, *, is_new: bool) -> Result:
    """Read from a failed write what became of it: an answer below 500 says that it was not carried out.

    An object that is gone was deleted by somebody; a new one that cannot be put anywhere means that the kind is gone.
    """
    if isinstance(error, ApiError) and (error.status == _TOO_LARGE or _ETCD_TOO_LARGE in str(error)):
        return Result.TOO_LARGE
    if not isinstance(error, ApiError) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Result.UNKNOWN
    return Result.CONFLICT if error.is_conflict or (error.is_missing and not is_new) else Result.REFUSED


@dataclass(frozen=True, slots=True)
class TeamObject:
    """Speaks to the API server about one team. All of it raises ClusterError, or ValueError for an object not ours."""

    connection: ApiConnection
    team: TeamName

    async def write(self, page: LedgerRecord, summary: Summary, *, version: int) -> TeamLedger:
        """Put a page over the version that was read, or make the object where that is 0."""
        method, path, verb = ("PUT", self._path, "update") if version else ("POST", PATH, "create")
        body = encode(page, summary, version=version)
        action = f"{verb} {TEAM_LEDGERS}"
        if len(body) > MAX_LEDGER_BYTES:
            raise ApiError(f"cannot {action}: {len(body):,} bytes are too many", status=_TOO_LARGE)
        return decode(await self.connection.send(method, path, body, action=action, seconds=WRITE_SECONDS))

    async def read(self) -> TeamLedger | None:
        """Get the object as it is now; None where there is none."""
        try:
            answer = await self.connection.send("GET", self._path, action=f"get {TEAM_LEDGERS}", seconds=WRITE_SECONDS)
        except ApiError as error:
            if not error.is_missing:
                raise
            return None
        return decode(answer)

    async def delete(self, *, version: int) -> None:
        """Delete the object, unless somebody wrote it since that version."""
        body = json.dumps({"preconditions": {"resourceVersion": str(version)}}).encode()
        try:
            await self.connection.send("DELETE", self._path, body, action=f"delete {TEAM_LEDGERS}")
        except ApiError as error:
            if not (error.is_conflict or error.is_missing):
                raise

    async def fate(self, flight: InFlightCharge) -> Evidence:
        """Ask what became of a pod: alive, or ended, which one that is not there is as well."""
        found = await fate_of(self.connection, flight.pod)
        is_there = found is not None and found.uid == flight.pod.uid and not found.has_ended
        return Alive(found.version) if found is not None and is_there else ENDED

    @property
    def _path(self) -> str:
        return f"{PATH}/{object_name(self.team)}"
