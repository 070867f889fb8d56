"""ResourceQuotas as shares: the GPUs that each namespace may ask for, and what of its quotas has no counterpart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core.model.demand import Weights
from webhook.core.model.gpu_names import looks_like_gpu
from webhook.core.model.names import Namespace, ResourceName
from webhook.kube.objects.quantity import exact
from webhook.kube.workloads.model import mapping, text

_REQUESTS: Final = "requests."
"""Quotas on extended resources are written `requests.NAME`; they know no other form."""


class QuotaShare(NamedTuple):
    """What a namespace's quotas allow, in GPU units; `left_out` tells what is not in that, for people."""

    namespace: Namespace
    gpus: int
    left_out: tuple[str, ...]


def shares_of(found: Iterable[Mapping[str, Any]], weights: Weights) -> list[QuotaShare]:
    """Sum up the GPUs of each namespace with a quota on any; of several quotas on one resource the least counts."""
    allowed: dict[Namespace, dict[ResourceName, Fraction]] = defaultdict(dict)
    left_out: dict[Namespace, list[str]] = defaultdict(list)
    for quota in found:
        metadata, spec = mapping(quota.get("metadata")), mapping(quota.get("spec"))
        namespace = Namespace(text(metadata.get("namespace")) or "default")
        for resource, pieces in _pieces(mapping(spec.get("hard"))):
            why = _trouble(spec, resource, weights)
            if why:
                left_out[namespace].append(f"{namespace}/{text(metadata.get('name'))}: {resource}: {why}")
            elif weights.get(resource):
                allowed[namespace][resource] = min(pieces, allowed[namespace].get(resource, pieces))
    return [
        QuotaShare(
            namespace,
            int(sum(pieces * weights[resource] for resource, pieces in allowed[namespace].items())),
            tuple(left_out[namespace]),
        )
        for namespace in sorted({*allowed, *left_out})
    ]


def _pieces(hard: Mapping[str, Any]) -> Iterable[tuple[ResourceName, Fraction]]:
    for key, quantity in hard.items():
        yield ResourceName(key.removeprefix(_REQUESTS)), exact(quantity)


def _trouble(spec: Mapping[str, Any], resource: ResourceName, weights: Weights) -> str:
    """Tell why a line of a quota cannot be taken over; empty if it can, or has nothing to do with GPUs."""
    if weights.get(resource) and (spec.get("scopes") or spec.get("scopeSelector")):
        return "it is for some pods only (scopes), and shares are for all"
    if resource not in weights and looks_like_gpu(resource):
        return "say what it counts, in `resources` of the policy"
    return ""
