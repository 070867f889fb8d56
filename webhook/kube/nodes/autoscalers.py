"""Which autoscalers a cluster has, by what the API server serves and by what they write about themselves.

A leftover or another product's kind of the same name must not count: Karpenter has two kinds of one version, both
cluster-scoped, and Cluster Autoscaler rewrites its status every few seconds while it runs. Sources:
sigs.k8s.io/karpenter/pkg/apis/crds; cluster-autoscaler/clusterstate/utils/status.go.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.autoscaler import Autoscaler
from webhook.core.model.names import Namespace
from webhook.kube.objects import keys, objects

KARPENTER_PATHS: Final = ("/apis/karpenter.sh/v1", "/apis/karpenter.sh/v1beta1")
"""Where Karpenter's kinds are served, the newest version first."""

STATUS_NAMESPACE: Final = Namespace("kube-system")
STATUS_NAME: Final = "cluster-autoscaler-status"
STATUS_PATH: Final = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
"""The ConfigMap that Cluster Autoscaler keeps up to date."""

STOPPED_SECONDS: Final = 3600.0
"""A status that is older was left by a Cluster Autoscaler that no longer runs. A restart takes minutes."""

UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"
_UPDATED_FORMAT: Final = "%Y-%m-%d %H:%M:%S %z"
_GROUP: Final = "karpenter.sh"
_KINDS: Final = {"nodepools": "NodePool", "nodeclaims": "NodeClaim"}


class Status(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap, as far as it may be the status of Cluster Autoscaler."""

    metadata: objects.ObjectMeta


class _Names(msgspec.Struct, frozen=True, gc=False):
    plural: str = ""
    kind: str = ""


class _DefinitionSpec(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    names: _Names = _Names()
    scope: str = ""


class Definition(msgspec.Struct, frozen=True, gc=False):
    """A CustomResourceDefinition, as far as it says which kind it is of."""

    metadata: objects.ObjectMeta
    spec: _DefinitionSpec = _DefinitionSpec()


class _Resource(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _Served(msgspec.Struct, frozen=True, gc=False):
    resources: list[_Resource] | None = None


class _Api(NamedTuple):
    version: str
    kind: str
    plural: str


API: Final = {
    Definition: _Api(keys.EXTENSIONS_API, "CustomResourceDefinition", "customresourcedefinitions"),
    Status: _Api(keys.CORE_API, "ConfigMap", "configmaps"),
}
"""How the API names these kinds."""

_served: Final = msgspec.json.Decoder(_Served)
_status: Final = msgspec.json.Decoder(Status)


def serves_karpenter(body: bytes) -> bool:
    """Whether the API's list of one version's resources has Karpenter's. Raises ValueError if it is no such list."""
    found = {each.name: each.kind for each in _served.decode(body).resources or () if not each.namespaced}
    return _KINDS.items() <= found.items()


def is_running(body: bytes, *, now: float) -> bool:
    """Whether a ConfigMap shows that Cluster Autoscaler runs. Raises ValueError if it is no object."""
    updated = updated_at(_status.decode(body))
    return updated is not None and now - updated < STOPPED_SECONDS


def updated_at(status: Status) -> float | None:
    """Return when Cluster Autoscaler wrote its status, in Unix seconds; None if something else wrote it."""
    text = (status.metadata.annotations or {}).get(UPDATED, "")
    date, _, rest = text.partition(" ")
    clock, _, zone = rest.partition(" ")
    try:
        at = datetime.strptime(f"{date} {clock.partition('.')[0]} {zone.partition(' ')[0]}", _UPDATED_FORMAT)
    except ValueError:
        return None
    return at.timestamp()


def found_in(saved: Iterable[Definition | Status]) -> frozenset[Autoscaler]:
    """Return the autoscalers of a cluster by its objects: time has passed since they were saved."""
    found, kinds = set(), {}
    for each in saved:
        if isinstance(each, Status):
            if each.metadata.name == STATUS_NAME and updated_at(each) is not None:
                found.add(Autoscaler.CLUSTER_AUTOSCALER)
        elif each.spec.group == _GROUP and each.spec.scope == "Cluster":
            kinds[each.spec.names.plural] = each.spec.names.kind
    if _KINDS.items() <= kinds.items():
        found.add(Autoscaler.KARPENTER)
    return frozenset(found)


def marks_of(autoscaler: Autoscaler, *, at: float) -> tuple[Definition | Status, ...]:
    """Return objects by which `found_in` finds an autoscaler at a time in Unix seconds."""
    match autoscaler:
        case Autoscaler.KARPENTER:
            return tuple(
                Definition(
                    objects.ObjectMeta(name=f"{plural}.{_GROUP}"),
                    _DefinitionSpec(_GROUP, _Names(plural, kind), "Cluster"),
                )
                for plural, kind in _KINDS.items()
            )
        case Autoscaler.CLUSTER_AUTOSCALER:
            updated = {UPDATED: datetime.fromtimestamp(at, UTC).strftime(f"{_UPDATED_FORMAT} UTC")}
            return (Status(objects.ObjectMeta(name=STATUS_NAME, namespace=STATUS_NAMESPACE, annotations=updated)),)


def objects_of(autoscalers: Iterable[Autoscaler], *, at: float) -> list[Mapping[str, Any]]:
    """Return the marks of autoscalers as the API would."""
    marks = (mark for each in autoscalers for mark in marks_of(each, at=at))
    return [{"apiVersion": API[type(mark)].version, "kind": API[type(mark)].kind, **_plain(mark)} for mark in marks]


def _plain(mark: Definition | Status) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(mark)
    return found | {"metadata": {key: value for key, value in found["metadata"].items() if value}}
