"""The minimums that elastic kinds state themselves: of the pods that one of their templates makes."""

from collections.abc import Sequence
from typing import Final

from webhook.kube.kinds.gang_rules import is_number
from webhook.kube.kinds.model import Json, listed, mapping, text
from webhook.kube.kinds.paths import dig

_PYTORCH_WORKER: Final = ("spec", "pytorchReplicaSpecs", "Worker", "template")
_RAY_GROUPS: Final = "workerGroupSpecs"
_VOLCANO_JOB: Final = ("batch.volcano.sh", "Job")


def elastic_minimum(document: Json, template: Sequence[str | int]) -> int | None:
    """Return the least pods of the template at a path of an object; None where the object states none for it.

    A Job of Volcano states one for all of its tasks, a PyTorchJob with an elastic policy for its workers, and a
    RayCluster whose autoscaler runs one for each group of single hosts, also inside a RayJob or RayService: replicas of
    several hosts go together.
    """
    kind = (text(document.get("apiVersion")).partition("/")[0], text(document.get("kind")))
    if kind == ("kubeflow.org", "PyTorchJob") and tuple(template) == _PYTORCH_WORKER:
        least = dig(document, "spec.elasticPolicy.minReplicas")
        return least if is_number(least) else None
    if kind == _VOLCANO_JOB:
        least = dig(document, "spec.minAvailable")
        return least if is_number(least) and least else None
    if kind[0] != "ray.io" or _RAY_GROUPS not in template:
        return None
    place = template.index(_RAY_GROUPS)
    cluster = dig(document, ".".join(map(str, template[:place])))
    number = template[place + 1]
    groups = listed(mapping(cluster).get(_RAY_GROUPS))
    if mapping(cluster).get("enableInTreeAutoscaling") is not True or not isinstance(number, int):
        return None
    group = mapping(groups[number])
    least = group.get("minReplicas") or 0
    return least if is_number(least) and group.get("numOfHosts", 1) == 1 else None


def may_be_elastic(document: Json) -> bool:
    """Whether an object is of a kind that states minimums."""
    group, kind = text(document.get("apiVersion")).partition("/")[0], text(document.get("kind"))
    return kind == "PyTorchJob" or group == "ray.io" or (group, kind) == _VOLCANO_JOB
