"""Other objects that a workload refers to, or that refer to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.kinds.paths import Count, count_at, dig

_Named = Mapping[tuple[str, str], Json]
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_KEDA_DEFAULT: Final = 100
"""KEDA's default maximum of a ScaledObject."""


@dataclass(frozen=True, slots=True)
class Related:
    """Objects by kind, namespace and name, and by kind and name alone; autoscalers by their target.

    `_defaults` are the devices that a namespace's LimitRanges give to containers that request none of them.
    """

    _kinds: Mapping[str, _Named] = field(default_factory=dict)
    _anywhere: _Named = field(default_factory=dict)
    _scalers: Mapping[tuple[str, str, str], Json] = field(default_factory=dict)
    _defaults: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Json], *, namespace: str = "default") -> "Related":
        """Return the objects of a stream; `namespace` is the default for objects without one."""
        kinds: dict[str, dict[tuple[str, str], Json]] = {}
        for document in documents:
            metadata = mapping(document.get("metadata"))
            key = (text(metadata.get("namespace")) or namespace, text(metadata.get("name")))
            kinds.setdefault(text(document.get("kind")), {})[key] = document
        anywhere: dict[tuple[str, str], Json] = {}
        for kind, known in kinds.items():
            for (_, name), document in known.items():
                anywhere.setdefault((kind, name), document)
        return cls(kinds, anywhere, _by_target(kinds), _defaults(kinds.get("LimitRange", {})))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Json | None:
        """Return an object, or None; without `namespace`, of a cluster-scoped kind."""
        if namespace is None:
            return self._anywhere.get((kind, name))
        return self._kinds.get(kind, {}).get((namespace, name))

    def with_defaults(self, spec: Json, namespace: str, budget: Budget) -> Json:
        """Return a pod's spec with the devices that the namespace's LimitRanges add to its containers."""
        given = self._defaults.get(namespace)
        if not given:
            return spec
        made = dict(spec)
        for field_name in ("containers", "initContainers"):
            if isinstance(containers := spec.get(field_name), list):
                budget.step(len(containers) * len(given))
                made[field_name] = [_with_defaults(mapping(each), given) for each in containers]
        return made

    def scaled_to(self, kind: str, name: str, *, namespace: str) -> Count | None:
        """Return an autoscaler's maximum for an object; None if no autoscaler targets it."""
        found = self._scalers.get((kind, namespace, name))
        if found is None:
            return None
        if found.get("kind") == "ScaledObject":
            return count_at(
                found, "spec.maxReplicaCount", default=_KEDA_DEFAULT, named="maxReplicaCount of its ScaledObject"
            )
        return count_at(found, "spec.maxReplicas", default=None, named="maxReplicas of its HorizontalPodAutoscaler")


def _with_defaults(container: Json, given: Json) -> Json:
    resources = mapping(container.get("resources"))
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    added = {name: amount for name, amount in given.items() if name not in limits and name not in requests}
    if not added:
        return container
    return {**container, "resources": {**resources, "limits": {**added, **limits}, "requests": {**added, **requests}}}


def _defaults(ranges: _Named) -> dict[str, Json]:
    """Return the default devices of containers by namespace; of several LimitRanges the first counts."""
    found: dict[str, dict[str, object]] = {}
    for (namespace, _), document in ranges.items():
        for limit in map(mapping, listed(dig(document, "spec.limits"))):
            if limit.get("type") != "Container":
                continue
            for name, amount in {**mapping(limit.get("defaultRequest")), **mapping(limit.get("default"))}.items():
                if "/" in str(name):
                    found.setdefault(namespace, {}).setdefault(str(name), amount)
    return dict(found)


def _by_target(kinds: Mapping[str, _Named]) -> dict[tuple[str, str, str], Json]:
    """Return the autoscalers by their targets; of several with one target the first counts."""
    found: dict[tuple[str, str, str], Json] = {}
    for scaler in _SCALERS:
        for (namespace, _), document in kinds.get(scaler, {}).items():
            target = mapping(dig(document, "spec.scaleTargetRef"))
            key = (text(target.get("kind")) or "Deployment", namespace, text(target.get("name")))
            found.setdefault(key, document)
    return found


NO_RELATED: Final = Related()
