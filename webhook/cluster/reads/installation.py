"""Rights, installation, other products.

What a caller may see: TokenReview says who it is, SubjectAccessReview what that user may do.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection, ApiError
from webhook.cluster.reads.listing import list_kind, list_objects, names_of_large, read_version
from webhook.cluster.writes.reports import read_report
from webhook.core.model.policy import Policy
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import Report
from webhook.kube.objects import keys
from webhook.kube.objects.bounds import EVICTABLE_BYTES
from webhook.kube.objects.events import read_lease
from webhook.kube.objects.keys import ServerVersion
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.registration import inventory
from webhook.kube.registration.guards import GUARDS
from webhook.kube.registration.inventory import GUARD, PLURALS, Probe, excluding_keys
from webhook.kube.registration.static_files import (
    StaticRegistration,
    pod_for_guard,
    pod_for_webhook,
    products_of,
    section_of,
    static_registration,
)
from webhook.kube.watched.world_kinds import LEDGERS, NAMESPACES

MAX_TOKEN: Final = 16_384
"""Characters of a token; those of ServiceAccounts have about a thousand."""
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A user as the API server knows it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict)


async def identity_of(connection: ApiConnection, token: str, *, audience: str = "") -> CallerIdentity | None:
    """Return the user of a token; None where it is not valid, or not for the audience. Raises ClusterError."""
    spec = {"token": token, "audiences": [audience]} if audience else {"token": token}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    body = await connection.send("POST", _TOKEN_REVIEWS, msgspec.json.encode(review), action="create tokenreviews")
    status = msgspec.json.decode(body, type=_TokenReview).status
    user = status.user
    if not status.authenticated or not user.username or (audience and audience not in status.audiences):
        return None
    return CallerIdentity(user.username, user.uid, tuple(user.groups), user.extra)


async def may_list(connection: ApiConnection, identity: CallerIdentity, resource: str, namespace: str = "") -> bool:
    """Whether a user may list a kind of the core API in a namespace, by default in all. Raises ClusterError."""
    attributes = {"verb": "list", "version": "v1", "resource": resource}
    attributes |= {"namespace": namespace} if namespace else {}
    spec = {
        "user": identity.name,
        "uid": identity.uid,
        "groups": identity.groups,
        "extra": identity.extra,
        "resourceAttributes": attributes,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    body = await connection.send(
        "POST", _ACCESS_REVIEWS, msgspec.json.encode(review), action="create subjectaccessreviews"
    )
    return msgspec.json.decode(body, type=_AccessReview).status.allowed


class CallerRights:
    """Asks the API server about tokens for one audience."""

    def __init__(self, connection: ApiConnection, *, audience: str) -> None:
        self._connection = connection
        self._audience = audience

    async def why_not_all_pods(self, token: str) -> str | None:
        """Return why the bearer of a token may not see all pods; None if it may. Raises ClusterError."""
        if not token or len(token) > MAX_TOKEN:
            return f"a token for the audience {self._audience} is required"
        identity = await identity_of(self._connection, token, audience=self._audience)
        if identity is None:
            return f"the token is not valid for the audience {self._audience}"
        if not await may_list(self._connection, identity, "pods"):
            return f"{identity.name} may not list pods in all namespaces"
        return None


# Reads which other products queue or place pods in a cluster: from what any user may read, and its webhooks.


_KIND: Final = "MutatingWebhookConfiguration"
_WEBHOOKS: Final = f"/apis/{keys.REGISTRATION_API}/{PLURALS[_KIND]}"

T = TypeVar("T")


class _Group(msgspec.Struct):
    name: str


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


@dataclass(frozen=True, slots=True)
class ProductsFound:
    """The products that were found, and the rights without which some would not be."""

    products: tuple[str, ...] = ()
    missing_rights: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What was found, with the sections to read, and why there may be more."""
        said = "no other queue or scheduler found"
        if self.products:
            verb = "is" if len(self.products) == 1 else "are"
            sections = ", ".join(map(section_of, self.products))
            said = f"{' and '.join(self.products)} {verb} installed: {sections}"
        if self.missing_rights:
            said += f"; there may be more: you lack the right to {' and '.join(self.missing_rights)}"
        return said


async def read_other_products(connection: ApiConnection) -> ProductsFound:
    """Read which products there are. Raises ClusterError if the API server cannot be reached."""
    missing: list[str] = []
    discovery = await _permitted(connection.send("GET", "/apis", action="get apis"), b"{}", "get apis", missing)
    webhooks = await _permitted(
        list_objects(connection, _WEBHOOKS, kind=_KIND, api=keys.REGISTRATION_API),
        [],
        f"list {PLURALS[_KIND]}",
        missing,
    )
    names = {group.name for group in msgspec.json.decode(discovery, type=_Groups).groups}
    names.update(webhook["name"] for each in webhooks for webhook in each.get("webhooks") or ())
    return ProductsFound(products_of(names), tuple(missing))


async def _permitted(reading: Awaitable[T], nothing: T, right: str, missing: list[str]) -> T:
    """Return what was read; without the right to, `nothing`, and the right is missing."""
    try:
        return await reading
    except ApiError as error:
        if not error.is_forbidden:
            raise
        missing.append(right)
        return nothing


# Reads the state of an installation for `fairgate doctor`: each part separately, since RBAC may allow only some.


_Json = dict[str, Any]
_OBJECT: Final = msgspec.json.Decoder(_Json)
_RENEWED_WITHIN: Final = 1 / 6
"""The part of a Lease's duration after which its renewal is late."""


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
class LeaseState:
    """A Lease that a process holds, and its last renewal; `is_stuck` if the next one did not come in time."""

    name: str
    namespace: str
    holder: str
    age_seconds: float
    renewed_at: str = ""
    is_stuck: bool = False


@dataclass(frozen=True, slots=True)
class InstallationState:
    """The state of an installation. `now` is the API server's time of day.

    `namespaces` are read where others exclude some from the webhooks (`excluding_keys`), and empty otherwise.
    `served` are the resources of Fairgate's own API. `version` is None if it cannot be read.
    """

    now: float | None
    replicas: ReadResult[Report]
    policy: ReadResult[Report]
    room: ReadResult[Report]
    configurations: dict[str, ReadResult[_Json]]
    guards: dict[tuple[str, str], ReadResult[_Json]]
    served: ReadResult[frozenset[str]]
    ledgers: ReadResult[list[_Json]]
    deployments: ReadResult[list[_Json]]
    large_pods: ReadResult[list[str]]
    namespaces: ReadResult[list[_Json]]
    others: ProductsFound
    version: ServerVersion | None
    leases: ReadResult[list[LeaseState]] = ReadForbidden("list leases")


async def read_installation(connection: ApiConnection) -> InstallationState:
    """Read all parts. Raises ClusterError if the API server cannot be reached."""
    replicas = await _part("get reports", read_report(connection, reports.REPLICAS))
    policy = await _part("get reports", read_report(connection, reports.POLICY))
    room = await _part("get reports", read_report(connection, reports.ROOM))
    configurations = {name: await _object(connection, kind, name) for kind, name in inventory.CONFIGURATIONS}
    guards = {
        (kind, name): await _object(connection, kind, name) for name in GUARDS for kind in (GUARD, f"{GUARD}Binding")
    }
    served = await _part(f"get /apis/{keys.OWN_API}", _served(connection))
    ledgers = await _part("list teamledgers", list_kind(connection, LEDGERS))
    deployments = await _deployments(connection, configurations.values())
    large_pods = await _part(
        "list pods", names_of_large(connection, "/api/v1/pods", over=EVICTABLE_BYTES, label=keys.TEAM)
    )
    namespaces: ReadResult[list[_Json]] = ReadValue([])
    if excluding_keys(part.value for part in configurations.values() if isinstance(part, ReadValue) and part.value):
        listed = list_kind(connection, NAMESPACES)
        namespaces = await _part("list namespaces", listed)
    return InstallationState(
        now=connection.server_time,
        replicas=replicas,
        policy=policy,
        room=room,
        configurations=configurations,
        guards=guards,
        served=served,
        ledgers=ledgers,
        deployments=deployments,
        large_pods=large_pods,
        namespaces=namespaces,
        others=await read_other_products(connection),
        version=await read_version(connection),
        leases=await _part("list leases", _leases(connection)),
    )


async def _leases(connection: ApiConnection) -> list[LeaseState]:
    """Read the Leases of servers and evictors that are held, wherever they are.

    Leaders renew theirs every two seconds of fifteen. One that is older is read again: its process is gone or hangs.
    """
    found = await _held_leases(connection)
    late = [each for each, duration in found if each.age_seconds > duration * _RENEWED_WITHIN]
    if not late:
        return [each for each, _ in found]
    await asyncio.sleep(max(duration for _, duration in found) * _RENEWED_WITHIN)
    before = {(each.name, each.namespace, each.renewed_at) for each in late}
    return [
        replace(each, is_stuck=(each.name, each.namespace, each.renewed_at) in before)
        for each, _ in await _held_leases(connection)
    ]


async def _held_leases(connection: ApiConnection) -> list[tuple[LeaseState, int]]:
    """Return the Leases that are held, with their durations in seconds."""
    held = []
    for name in (keys.SERVER_LEASE, keys.EVICTOR_LEASE):
        params = {"fieldSelector": f"metadata.name={name}"}
        body = await connection.send("GET", f"/apis/{keys.LEASE_API}/leases", action="list leases", params=params)
        now = connection.server_time or time.time()
        for raw in _OBJECT.decode(body).get("items") or ():
            record = read_lease(msgspec.json.encode(raw)).record
            renewed = unix_seconds(record.renewed_at.partition(".")[0].rstrip("Z") + "Z")
            if record.holder and renewed:
                age = max(0.0, now - renewed)
                state = LeaseState(name, raw["metadata"].get("namespace", ""), record.holder, age, record.renewed_at)
                held.append((state, record.duration_seconds))
    return held


async def probe(connection: ApiConnection, policy: Policy, *, namespace: str) -> Probe | ReadForbidden:
    """Create a GPU pod as a dry run, which calls the webhooks and stores nothing. Raises ClusterError."""
    try:
        answer = await _create_dry(connection, inventory.probe_pod(policy), namespace)
    except ApiError as error:
        if error.is_forbidden and "cannot create resource" in str(error):
            return ReadForbidden(f"create pods in namespace {namespace}")
        return inventory.refused_probe(error.status, str(error))
    return inventory.created_probe(_OBJECT.decode(answer))


async def read_static_registration(connection: ApiConnection, *, resource: str, namespace: str) -> StaticRegistration:
    """Have two pods refused, in dry runs: refusals name what refused them. Raises ClusterError.

    Without the right to create pods, and where policy is not enforced, this shows nothing.
    """
    by_webhook = await _refusal(connection, pod_for_webhook(resource), namespace)
    by_guard = await _refusal(connection, pod_for_guard(), namespace)
    return static_registration(by_webhook=by_webhook, by_guard=by_guard)


async def may_create_pods(connection: ApiConnection, namespace: str) -> bool:
    """Return whether RBAC allows it. Raises ClusterError."""
    asked = {"verb": "create", "resource": "pods", "namespace": namespace}
    api, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
    review = {"apiVersion": api, "kind": kind, "spec": {"resourceAttributes": asked}}
    path, body = f"/apis/{api}/{kind.lower()}s", msgspec.json.encode(review)
    answer = _OBJECT.decode(await connection.send("POST", path, body, action=f"create {kind.lower()}s"))
    return bool(answer["status"]["allowed"])


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
    return isinstance(part, ReadValue) and inventory.is_exempt(part.value)


async def _object(connection: ApiConnection, kind: str, name: str) -> ReadResult[_Json]:
    action = f"get {PLURALS[kind]}"
    return await _part(action, _get(connection, inventory.path_of(kind, name), action))


async def _get(connection: ApiConnection, path: str, action: str) -> _Json:
    return _OBJECT.decode(await connection.send("GET", path, action=action))


async def _served(connection: ApiConnection) -> frozenset[str]:
    found = await _get(connection, f"/apis/{keys.OWN_API}", "read what the API server serves")
    return frozenset(each["name"] for each in found["resources"])


async def _deployments(
    connection: ApiConnection, configurations: Iterable[ReadResult[_Json]]
) -> ReadResult[list[_Json]]:
    """Read Fairgate's Deployments and StatefulSets in the namespace of the webhooks' Service; none if by URL."""
    found = [part.value for part in configurations if isinstance(part, ReadValue) and part.value is not None]
    namespaces = {caller.service_namespace for each in found for caller in inventory.webhook_endpoints(each)} - {""}
    if len(namespaces) != 1:
        return ReadValue([])
    apps = f"/apis/apps/v1/namespaces/{namespaces.pop()}"
    listed: list[_Json] = []
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets")):
        listed_kind = list_objects(connection, f"{apps}/{plural}", kind=kind, api="apps/v1")
        part = await _part(f"list {plural}", listed_kind)
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
