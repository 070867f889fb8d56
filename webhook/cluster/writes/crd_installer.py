"""Installs one CustomResourceDefinition if it is missing, also later; one that does not fit is reported."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.api.one_object import read
from webhook.cluster.watch.pace import DEFAULT_PACE, Pace
from webhook.kube.ledger.definition import why_unfit

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHECK_SECONDS: Final = 15.0
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
    check_seconds: float = CHECK_SECONDS
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
