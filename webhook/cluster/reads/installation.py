"""Reads the state of an installation for `fairgate doctor`: each part separately, since RBAC may allow only some."""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.ledger.team_ledger_client import PATH as LEDGERS
from webhook.cluster.reads.listing import list_objects, names_of_large
from webhook.cluster.reads.other_products import ProductsFound, read_other_products
from webhook.cluster.reads.server_version import read_version
from webhook.cluster.writes.reports import read_report
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import Report
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import EVICTABLE_BYTES
from webhook.kube.objects.server_version import ServerVersion
from webhook.kube.registration import installation
from webhook.kube.registration.installation import Probe
from webhook.kube.registration.registration_sync import GUARD, PLURALS, excluding_keys
from webhook.kube.registration.static_registration import (
    StaticRegistration,
    pod_for_guard,
    pod_for_webhook,
    static_registration,
)
from webhook.kube.registration.viewer_role import GUARDS
from webhook.kube.world_file.world_objects import WorldKind

T = TypeVar("T")

_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)


@dataclass(frozen=True, slots=True)
class ReadForbidden:
    """A part that RBAC forbids to read: the missing right."""

    right: str


@dataclass(frozen=True, slots=True)
class ReadValue(Generic[T]):
    """A part that was read; None if there is no such object."""

    value: T | None


ReadResult = ReadValue[T] | ReadForbidden


@dataclass(frozen=True, slots=True)
class InstallationState:
    """The state of an installation. `now` is the API server's time of day.

    `namespaces` are read where others exclude some from the webhooks (`excluding_keys`), and empty otherwise.
    `version` is None if it cannot be read.
    """

    now: float | None
    replicas: ReadResult[Report]
    policy: ReadResult[Report]
    room: ReadResult[Report]
    configurations: dict[str, ReadResult[_Json]]
    guards: dict[tuple[str, str], ReadResult[_Json]]
    ledgers: ReadResult[list[_Json]]
    deployments: ReadResult[list[_Json]]
    large_pods: ReadResult[list[str]]
    namespaces: ReadResult[list[_Json]]
    others: ProductsFound
    version: ServerVersion | None


async def read_installation(connection: ApiConnection) -> InstallationState:
    """Read all parts. Raises ClusterError if the API server cannot be reached."""
    replicas = await _part("get reports", read_report(connection, reports.REPLICAS))
    policy = await _part("get reports", read_report(connection, reports.POLICY))
    room = await _part("get reports", read_report(connection, reports.ROOM))
    configurations = {name: await _object(connection, kind, name) for kind, name in installation.CONFIGURATIONS}
    guards = {
        (kind, name): await _object(connection, kind, name) for name in GUARDS for kind in (GUARD, f"{GUARD}Binding")
    }
    ledgers = await _part(
        "list teamledgers", list_objects(connection, WorldKind(keys.TEAM_LEDGER, keys.OWN_API, LEDGERS))
    )
    deployments = await _deployments(connection, configurations.values())
    large_pods = await _part(
        "list pods", names_of_large(connection, "/api/v1/pods", over=EVICTABLE_BYTES, label=keys.TEAM)
    )
    namespaces: ReadResult[list[_Json]] = ReadValue([])
    if excluding_keys(part.value for part in configurations.values() if isinstance(part, ReadValue) and part.value):
        listed = list_objects(connection, WorldKind("Namespace", keys.CORE_API, "/api/v1/namespaces"))
        namespaces = await _part("list namespaces", listed)
    return InstallationState(
        now=connection.server_time,
        replicas=replicas,
        policy=policy,
        room=room,
        configurations=configurations,
        guards=guards,
        ledgers=ledgers,
        deployments=deployments,
        large_pods=large_pods,
        namespaces=namespaces,
        others=await read_other_products(connection),
        version=await read_version(connection),
    )


async def probe(connection: ApiConnection, policy: Policy, *, namespace: str) -> Probe | ReadForbidden:
    """Create a GPU pod as a dry run, which calls the webhooks and stores nothing. Raises ClusterError."""
    try:
        answer = await _create_dry(connection, installation.probe_pod(policy), namespace)
    except ApiError as error:
        if error.is_forbidden and "cannot create resource" in str(error):
            return ReadForbidden(f"create pods in namespace {namespace}")
        return installation.refused_probe(error.status, str(error))
    return installation.created_probe(_OBJECT.decode(answer))


async def read_static_registration(connection: ApiConnection, *, resource: str, namespace: str) -> StaticRegistration:
    """Have two pods refused, in dry runs: refusals name what refused them. Raises ClusterError.

    Without the right to create pods, and where policy is not enforced, this shows nothing.
    """
    by_webhook = await _refusal(connection, pod_for_webhook(resource), namespace)
    by_guard = await _refusal(connection, pod_for_guard(), namespace)
    return static_registration(by_webhook=by_webhook, by_guard=by_guard)


async def _refusal(connection: ApiConnection, pod: _Json, namespace: str) -> str:
    try:
        await _create_dry(connection, pod, namespace)
    except ApiError as error:
        return str(error)
    return ""


async def _create_dry(connection: ApiConnection, pod: _Json, namespace: str) -> bytes:
    path, body = f"/api/v1/namespaces/{namespace}/pods", msgspec.json.encode(pod)
    return await connection.send("POST", path, body, action="create pods", params={"dryRun": "All"}, seconds=35)


async def is_exempt(connection: ApiConnection, namespace: str) -> bool:
    """Return whether a namespace's label exempts it; False if the namespace may not be read."""
    part = await _part("get namespaces", _get(connection, f"/api/v1/namespaces/{namespace}", "get namespaces"))
    return isinstance(part, ReadValue) and installation.is_exempt(part.value)


async def _object(connection: ApiConnection, kind: str, name: str) -> ReadResult[_Json]:
    action = f"get {PLURALS[kind]}"
    return await _part(action, _get(connection, installation.path_of(kind, name), action))


async def _get(connection: ApiConnection, path: str, action: str) -> _Json:
    return _OBJECT.decode(await connection.send("GET", path, action=action))


async def _deployments(
    connection: ApiConnection, configurations: Iterable[ReadResult[_Json]]
) -> ReadResult[list[_Json]]:
    """Read Fairgate's Deployments and StatefulSets in the namespace of the webhooks' Service; none if by URL."""
    found = [part.value for part in configurations if isinstance(part, ReadValue) and part.value is not None]
    namespaces = {caller.service_namespace for each in found for caller in installation.webhook_endpoints(each)} - {""}
    if len(namespaces) != 1:
        return ReadValue([])
    apps = f"/apis/apps/v1/namespaces/{namespaces.pop()}"
    listed: list[_Json] = []
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets")):
        part = await _part(f"list {plural}", list_objects(connection, WorldKind(kind, "apps/v1", f"{apps}/{plural}")))
        if isinstance(part, ReadForbidden):
            return part
        listed += part.value or ()
    return ReadValue([each for each in listed if dict(keys.OWN_LABELS).items() <= _labels(each).items()])


def _labels(found: _Json) -> dict[str, str]:
    return found["metadata"].get("labels") or {}


async def _part(action: str, reading: Awaitable[T]) -> ReadResult[T]:
    """Read a part: None if it is missing, the missing right if it is forbidden."""
    try:
        return ReadValue(await reading)
    except ApiError as error:
        if error.is_missing:
            return ReadValue(None)
        if error.is_forbidden:
            return ReadForbidden(action)
        raise
