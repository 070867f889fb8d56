"""Other objects that a workload refers to, or that refer to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.kinds.model import Json, mapping, text
from webhook.kube.kinds.paths import Count, count_at, dig

_Named = Mapping[tuple[str, str], Json]
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_KEDA_DEFAULT: Final = 100
"""KEDA's default maximum of a ScaledObject."""


@dataclass(frozen=True, slots=True)
class Related:
    """Objects by kind, namespace and name, and by kind and name alone; autoscalers by their target."""

    _kinds: Mapping[str, _Named] = field(default_factory=dict)
    _anywhere: _Named = field(default_factory=dict)
    _scalers: Mapping[tuple[str, str, str], Json] = field(default_factory=dict)

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
        return cls(kinds, anywhere, _by_target(kinds))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Json | None:
        """Return an object, or None; without `namespace`, of a cluster-scoped kind."""
        if namespace is None:
            return self._anywhere.get((kind, name))
        return self._kinds.get(kind, {}).get((namespace, name))

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
