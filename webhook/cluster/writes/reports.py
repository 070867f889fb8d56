"""Writes Reports, and installs the definitions that they and ledgers need.

Installs one CustomResourceDefinition if it is missing, also later; one that does not fit is reported.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection, ApiError, ClusterError
from webhook.cluster.api.requests import decoded, read
from webhook.cluster.watch.event_stream import DEFAULT_PACE, Pace
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import ReplicaReport, Report, why_unfit

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION_CHECK_SECONDS: Final = 15.0
"""Between two checks whether it is still there: it is deleted by hand only, and by mistake."""

_POLL_SECONDS: Final = 0.1
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Also written by `kubectl create --save-config`: without it a later `kubectl apply` warns."""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None  # null at first


class _Definition(msgspec.Struct):
    spec: dict[str, Any]
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_established(self) -> bool:
        return any(c.type == "Established" and c.status == "True" for c in self.status.conditions or ())


_definition: Final = msgspec.json.Decoder(_Definition)


class _UnfitError(ClusterError):
    """The definition is another version's or another product's."""


@dataclass(slots=True)
class CrdInstaller:
    """A required CustomResourceDefinition. `problem` is why it is missing or unfit, None once it is established.

    One of another version, or of another product, is never changed: that is for an admin to do. Once it is
    established, a check that gets no answer changes nothing: what an unreachable API server means, the watches say.
    """

    connection: ApiConnection
    manifest: dict[str, Any]
    pace: Pace = DEFAULT_PACE
    check_seconds: float = DEFINITION_CHECK_SECONDS
    problem: str | None = "not checked yet"

    async def run(self) -> NoReturn:
        """Create it whenever it is missing and RBAC allows it, until cancelled."""
        failures = 0
        while True:
            try:
                await self.ensure()
            except ClusterError as error:
                is_answer = isinstance(error, _UnfitError) or (isinstance(error, ApiError) and error.is_refusal)
                if is_answer:
                    self.problem = f"{error}; an admin can apply it: `fairgate manifests` prints it"
                elif self.problem is not None:
                    self.problem = str(error)
                failures += 1
                await asyncio.sleep(self.pace.backoff(failures))
            else:
                self.problem, failures = None, 0
                await asyncio.sleep(self.check_seconds)

    async def ensure(self) -> None:
        """Create it if it is missing, and return once the API server serves it. Raises ClusterError."""
        path = f"{_PATH}/{self.manifest['metadata']['name']}"
        while True:
            found = await read(self.connection, path, _definition.decode, action="get customresourcedefinitions")
            if found is None:
                await self._create()
                continue
            if found.is_established:
                if (why := why_unfit({"spec": found.spec}, self.manifest)) is not None:
                    name = self.manifest["metadata"]["name"]
                    raise _UnfitError(f"the CustomResourceDefinition {name} is not this version's: {why}")
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _create(self) -> None:
        metadata = self.manifest["metadata"] | {"annotations": {_APPLIED: json.dumps(self.manifest) + "\n"}}
        body = json.dumps(self.manifest | {"metadata": metadata}).encode()
        try:
            await self.connection.send("POST", _PATH, body, action="create customresourcedefinitions")
        except ApiError as error:
            if not error.is_conflict:
                raise


# Reports on the API: written by each process about itself, and by the leader about the cluster; read by commands.


CHECK_SECONDS: Final = 2.0
"""Between two checks whether the state of the process changed: a change is published at the next one."""

REPEAT_SECONDS: Final = 10.0
"""An unchanged state is published again after so long, to show that the process runs."""

FORGET_SECONDS: Final = 300.0
"""An entry that was not renewed for so long is removed by the next writer: its process did not stop cleanly."""

_WITHDRAW_SECONDS: Final = 2.0
_log: Final = logging.getLogger("webhook.cluster.writes.reports")


async def write_report(connection: ApiConnection, name: str, patch: dict[str, Any]) -> Report:
    """Merge a patch into a report, which is created if it is missing. Raises ClusterError."""
    path = f"{reports.PATH}/{name}"
    encoded = msgspec.json.encode(patch)
    try:
        body = await connection.send("PATCH", path, encoded, action="patch reports", content_type=MERGE_PATCH)
    except ApiError as error:
        if not error.is_missing:
            raise
        body = await connection.send("POST", reports.PATH, reports.new_report(name, patch), action="create reports")
    return decoded(body, reports.decode, action="get reports")


async def read_report(connection: ApiConnection, name: str) -> Report:
    """Return a report. Raises ClusterError; an ApiError that `is_missing` if there is none."""
    body = await connection.send("GET", f"{reports.PATH}/{name}", action="get reports")
    return decoded(body, reports.decode, action="get reports")


class ReportWriter:
    """Writes one report; `problem` is why the last write failed, which is logged once."""

    def __init__(self, connection: ApiConnection, name: str) -> None:
        self.problem: str | None = None
        self._connection = connection
        self._name = name

    async def write(self, patch: dict[str, Any]) -> Report | None:
        """Merge a patch into the report, and return it; None if that failed."""
        try:
            report = await write_report(self._connection, self._name, patch)
        except ClusterError as error:
            if self.problem != str(error):
                self.problem = str(error)
                _log.warning("report %s not written: %s", self._name, error)
            return None
        self.problem = None
        return report


class ReplicaReporter:
    """Publishes the state of one process. Start `run` as a task; `problem` is why the last write failed."""

    def __init__(
        self,
        connection: ApiConnection,
        *,
        identity: str,
        describe: Callable[[str], ReplicaReport],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._writer = ReportWriter(connection, reports.REPLICAS)
        self._identity = identity
        self._describe = describe
        self._clock = clock or connection.unix_time
        self._replicas: Mapping[str, ReplicaReport] = {}
        self._expired: list[str] = []
        self._last: ReplicaReport | None = None
        self._last_at = float("-inf")

    @property
    def problem(self) -> str | None:
        """Why the last write failed."""
        return self._writer.problem

    @property
    def replicas(self) -> Mapping[str, ReplicaReport]:
        """The reports of all processes as of the last write; none if that failed."""
        return self._replicas if self.problem is None else {}

    async def run(self) -> NoReturn:
        """Publish every change, and the unchanged state every ten seconds, until cancelled; then remove the entry."""
        try:
            while True:
                await self.publish()
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            await self._withdraw()

    async def publish(self) -> None:
        """Publish the state if it changed or was published too long ago. A failure is logged once."""
        now = asyncio.get_running_loop().time()
        found = self._describe("")
        if found == self._last and now - self._last_at < REPEAT_SECONDS:
            return
        dated = self._describe(reports.written_at(self._clock()))
        report = await self._writer.write(reports.replica_patch(self._identity, dated, gone=self._expired))
        if report is None:
            return
        self._last, self._last_at, self._replicas = found, now, report.replicas
        self._expired = [name for name, each in report.replicas.items() if self._is_expired(name, each)]

    def _is_expired(self, name: str, report: ReplicaReport) -> bool:
        at = reports.read_at(report.at)
        return name != self._identity and (at is None or self._clock() - at > FORGET_SECONDS)

    async def _withdraw(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await self._writer.write(reports.replica_patch(self._identity, None))
