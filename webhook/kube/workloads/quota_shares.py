"""ResourceQuotas as shares: the GPUs that each namespace may request, and the quota entries without a counterpart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core.model.demand import Weights
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import Namespace, ResourceName
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects.quantity import exact

_REQUESTS: Final = "requests."
"""Quotas on extended resources have only the form `requests.NAME`."""


class QuotaShare(NamedTuple):
    """What a namespace's quotas allow, in GPU units; `left_out` has a message for each entry that is not included."""

    namespace: Namespace
    gpus: int
    left_out: tuple[str, ...]


def shares_of(found: Iterable[Mapping[str, Any]], weights: Weights) -> list[QuotaShare]:
    """Return the GPUs of each namespace with a GPU quota; of several quotas on one resource the smallest counts."""
    allowed: dict[Namespace, dict[ResourceName, Fraction]] = defaultdict(dict)
    left_out: dict[Namespace, list[str]] = defaultdict(list)
    for quota in found:
        metadata, spec = mapping(quota.get("metadata")), mapping(quota.get("spec"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        for resource, amount in _amounts(mapping(spec.get("hard"))):
            why = _why_left_out(spec, resource, weights)
            if why:
                left_out[namespace].append(f"{namespace}/{text(metadata.get('name'))}: {resource}: {why}")
            elif weights.get(resource):
                allowed[namespace][resource] = min(amount, allowed[namespace].get(resource, amount))
    return [
        QuotaShare(
            namespace,
            int(sum(amount * weights[resource] for resource, amount in allowed[namespace].items())),
            tuple(left_out[namespace]),
        )
        for namespace in sorted({*allowed, *left_out})
    ]


def _amounts(hard: Mapping[str, Any]) -> Iterable[tuple[ResourceName, Fraction]]:
    for key, quantity in hard.items():
        yield ResourceName(key.removeprefix(_REQUESTS)), exact(quantity)


def _why_left_out(spec: Mapping[str, Any], resource: ResourceName, weights: Weights) -> str:
    """Return why an entry of a quota cannot be converted; empty if it can, or does not concern GPUs."""
    if weights.get(resource) and (spec.get("scopes") or spec.get("scopeSelector")):
        return "it applies to some pods only (scopes), and shares apply to all"
    if resource not in weights and looks_like_gpu(resource):
        return "set its weight in `resources` of the policy"
    return ""
