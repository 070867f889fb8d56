"""The pods that objects of the stream have in the world already, found by the names that controllers give."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.kube.workloads.model import PodSet, Workload, mapping, text

_BARE: Final = ""
"""Stands for the kind of a controller where a pod has none."""

_GENERATED: Final = re.compile(r"(-[a-z0-9]{5,10}|-driver)?")
"""What a controller adds for an object in between: a ReplicaSet's hash, a CronJob's minute, a RayCluster's letters."""


class Running:
    """Pods by namespace and kind and name of their controller."""

    def __init__(self, pods: Iterable[Resident]) -> None:
        self._found: dict[tuple[str, str], dict[str, list[Uid]]] = defaultdict(dict)
        for pod in pods:
            kind, name = (_BARE, pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
            self._found[pod.namespace, kind].setdefault(name, []).append(pod.uid)

    def take(self, workload: Workload) -> list[Uid]:
        """Give the pods that the workload has already, once."""
        taken: list[Uid] = []
        for pod_set in filter(_has_template, workload.pod_sets):
            kind = _maker(pod_set)
            owners = self._found.get((workload.namespace, kind), {})
            for name in [name for name in owners if _is_of(workload, pod_set, kind=kind, name=name)]:
                taken += owners.pop(name)
        return taken


def _has_template(pod_set: PodSet) -> bool:
    return bool(pod_set.template)


def _maker(pod_set: PodSet) -> str:
    """Name the kind of the pods' controller."""
    owners: Iterator[str] = (
        text(owner.get("kind"))
        for owner in mapping(pod_set.template.get("metadata")).get("ownerReferences") or ()
        if isinstance(owner, dict)
    )
    return next(owners, _BARE)


def _is_of(workload: Workload, pod_set: PodSet, *, kind: str, name: str) -> bool:
    """Tell whether a controller of this name is the workload itself, or one that it made for these pods."""
    if not name.startswith(workload.name):
        return False
    rest = name.removeprefix(workload.name)
    if kind in (workload.kind, _BARE):
        return not rest
    numbered = rf"(-{re.escape(pod_set.role)})?-\d+" if kind == "StatefulSet" else rf"-{re.escape(pod_set.role)}-\d+"
    return bool(_GENERATED.fullmatch(rest) or re.fullmatch(numbered, rest))
