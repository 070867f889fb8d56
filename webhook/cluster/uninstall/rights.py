"""The rights that an uninstallation needs, and which of them its user lacks."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.uninstall.scope import Scope, Tempo
from webhook.kube.objects import keys
from webhook.kube.registration.inventory import (
    DEFINITIONS,
    HELD_ROOM,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    OwnedObject,
    certificates,
    leases,
)

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """A verb on a resource of an API group; no name is every object, no namespace all or none."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    @property
    def text(self) -> str:
        """The right in words."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{named}" + (f" in namespace {self.namespace}" if self.namespace else "")


def needed_rights(scope: Scope) -> tuple[Right, ...]:
    """Return every right that an uninstallation of this scope needs, in the order of its steps."""
    return tuple(dict.fromkeys(_needed(scope)))


def _needed(scope: Scope) -> Iterator[Right]:
    for each in (*WEBHOOKS, *REGISTERED_GUARDS, *ROLES):
        yield from _of(each, "get", "delete")
    yield Right("list", "", "pods")
    yield Right("patch", "", "pods")
    yield Right("list", "", "nodes")
    yield Right("get", "", "nodes")
    yield Right("patch", "", "nodes")
    yield from _of(HELD_ROOM, "get", "delete")
    yield Right("get", keys.OWN_GROUP, keys.REPORTS, "replicas")
    for each in DEFINITIONS:
        yield from _of(each, "get", *(() if scope.keeps_definitions else ("delete",)))
    yield from _workloads(scope)
    for lease in leases(scope.namespace):
        if scope.namespace:
            yield from _of(lease, "get", "patch", "delete")
    if not scope.namespace:
        for verb in ("list", "patch", "delete"):
            yield Right(verb, "coordination.k8s.io", "leases")
    if scope.certs_secret:
        yield from _of(certificates(scope.secret_namespace, scope.certs_secret), "delete")


def _workloads(scope: Scope) -> Iterator[Right]:
    for plural in ("deployments", "statefulsets"):
        yield Right("get" if scope.workload else "list", "apps", plural, scope.workload, scope.namespace)
        yield Right("patch", "apps", f"{plural}/scale", scope.workload, scope.namespace)


def _of(owned: OwnedObject, *verbs: str) -> Iterator[Right]:
    return (Right(verb, owned.group, owned.plural, owned.name, owned.namespace) for verb in verbs)


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def missing_rights(connection: ApiConnection, rights: Iterable[Right], tempo: Tempo) -> list[Right]:
    """Return the rights that the user lacks, as the API server says. Raises ClusterError."""
    wanted, limit = list(rights), asyncio.Semaphore(tempo.at_once)

    async def has(right: Right) -> bool:
        async with limit:
            return await _has(connection, right)

    allowed = await asyncio.gather(*map(has, wanted))
    return [right for right, is_allowed in zip(wanted, allowed, strict=True) if not is_allowed]


async def _has(connection: ApiConnection, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    body = await connection.send(
        "POST", _REVIEWS, msgspec.json.encode(review), action="create selfsubjectaccessreviews"
    )
    return msgspec.json.decode(body, type=_Review).status.allowed
