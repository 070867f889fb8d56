"""Finds the pods in the world that belong to an object of the manifests, by the names that controllers give."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.model.pod import Pod, Resident
from webhook.kube.kinds.model import PodSet, Workload, mapping, text

_BARE: Final = ""
"""Kind of the controller of pods that have none."""

_GENERATED: Final = re.compile(r"(-[a-z0-9]{5,10}|-driver)?")
"""Suffix of an intermediate object: a ReplicaSet's hash, a CronJob's minute, a RayCluster's letters."""


class ExistingPods:
    """Pods by namespace and kind and name of their controller, those in line as well."""

    def __init__(self, pods: Iterable[Resident | Pod]) -> None:
        self._found: dict[tuple[str, str], dict[str, list[Uid]]] = defaultdict(dict)
        for pod in pods:
            kind, name = (_BARE, pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
            self._found[pod.namespace, kind].setdefault(name, []).append(pod.uid)

    def take(self, workload: Workload) -> list[Uid]:
        """Return the existing pods of a workload, and remove them."""
        taken: list[Uid] = []
        for pod_set in filter(_has_template, workload.pod_sets):
            kind = _controller_kind(pod_set)
            owners = self._found.get((workload.namespace, kind), {})
            for name in [name for name in owners if _belongs_to(workload, pod_set, kind=kind, name=name)]:
                taken += owners.pop(name)
        return taken


def _has_template(pod_set: PodSet) -> bool:
    return bool(pod_set.template)


def _controller_kind(pod_set: PodSet) -> str:
    """Return the kind of the pods' controller."""
    owners: Iterator[str] = (
        text(owner.get("kind"))
        for owner in mapping(pod_set.template.get("metadata")).get("ownerReferences") or ()
        if isinstance(owner, dict)
    )
    return next(owners, _BARE)


def _belongs_to(workload: Workload, pod_set: PodSet, *, kind: str, name: str) -> bool:
    """Whether a controller of this name is the workload itself, or was created by it for these pods."""
    if not name.startswith(workload.name):
        return False
    rest = name.removeprefix(workload.name)
    if kind in (workload.kind, _BARE):
        return not rest
    numbered = rf"(-{re.escape(pod_set.role)})?-\d+" if kind == "StatefulSet" else rf"-{re.escape(pod_set.role)}-\d+"
    return bool(_GENERATED.fullmatch(rest) or re.fullmatch(numbered, rest))
