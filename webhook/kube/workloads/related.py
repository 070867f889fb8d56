"""Other objects that a workload refers to, or that refer to it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.workloads.model import Json, mapping, text
from webhook.kube.workloads.paths import Count, count_at, dig

_Named = Mapping[tuple[str, str], Json]
_KEDA_DEFAULT: Final = 100
"""KEDA's default maximum of a ScaledObject."""


@dataclass(frozen=True, slots=True)
class Related:
    """Objects by kind, namespace and name."""

    _kinds: Mapping[str, _Named] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Json], *, namespace: str = "default") -> "Related":
        """Return the objects of a stream; `namespace` is the default for objects without one."""
        kinds: dict[str, dict[tuple[str, str], Json]] = {}
        for document in documents:
            metadata = mapping(document.get("metadata"))
            key = (text(metadata.get("namespace")) or namespace, text(metadata.get("name")))
            kinds.setdefault(text(document.get("kind")), {})[key] = document
        return cls(kinds)

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Json | None:
        """Return an object, or None; without `namespace`, of a cluster-scoped kind."""
        known = self._kinds.get(kind, {})
        if namespace is not None:
            return known.get((namespace, name))
        return next((found for key, found in known.items() if key[1] == name), None)

    def scaled_to(self, kind: str, name: str, *, namespace: str) -> Count | None:
        """Return an autoscaler's maximum for an object; None if no autoscaler targets it."""
        found = next(self._scalers(kind, name, namespace), None)
        if found is None:
            return None
        if found.get("kind") == "ScaledObject":
            return count_at(
                found, "spec.maxReplicaCount", default=_KEDA_DEFAULT, named="maxReplicaCount of its ScaledObject"
            )
        return count_at(found, "spec.maxReplicas", default=None, named="maxReplicas of its HorizontalPodAutoscaler")

    def _scalers(self, kind: str, name: str, namespace: str) -> Iterator[Json]:
        for scaler in ("HorizontalPodAutoscaler", "ScaledObject"):
            for (where, _), found in self._kinds.get(scaler, {}).items():
                target = mapping(dig(found, "spec.scaleTargetRef"))
                is_target = (text(target.get("kind")) or "Deployment", target.get("name")) == (kind, name)
                if is_target and where == namespace:
                    yield found


NO_RELATED: Final = Related()
