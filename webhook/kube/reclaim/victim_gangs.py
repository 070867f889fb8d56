"""Which pods are evicted together: those of a gang that the object that makes them declares.

Users can write the markers of gangs (webhook/kube/pod/gangs.py) on each of their pods, and which pods are evicted last
must not follow from that alone. So a marker counts here only where it agrees with the pod's controller, and where it
could have any value, the gang is the marked pods of one controller, however the markers divide them. Kubernetes deletes
pods whose controller does not exist (its garbage collector).
"""

from collections.abc import Mapping
from typing import Final

from webhook.core.model.names import GangId
from webhook.kube.kinds.table import BY_KIND
from webhook.kube.objects import keys, objects
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import controller_of
from webhook.kube.pod.domain_requests import domain_request
from webhook.kube.pod.gangs import gang_of_controller, gang_of_marker, gang_of_pod_group, is_requested

_NO_KEYS: Final[Mapping[str, str]] = {}
_BATCH_JOB: Final = ("batch", "Job")
_STATEFUL_SET: Final = ("apps", "StatefulSet")
_BUILT_IN: Final = frozenset({("", "Pod"), *(kind for kind, row in BY_KIND.items() if row.gang.of_controller)})
"""The kinds of Kubernetes whose pods may be a gang; a driver of Spark is the controller of its executors."""

_USER_LABELS: Final = (
    keys.SCHEDULER_PLUGINS_GROUP,
    "kueue.x-k8s.io/pod-group-name",
    "gang.scheduling.koordinator.sh/name",
)
"""Labels that authors of workloads write, with a value of their own."""

_GANG_GROUPS: Final = frozenset(group for (group, _), row in BY_KIND.items() if row.kind.is_gang)
"""API groups whose kinds make gangs. Volcano and KAI-Scheduler write their annotations on every pod that they place."""


def victim_gang(metadata: objects.ObjectMeta, spec: objects.PodSpec, *, namespace: str) -> GangId | None:
    """Return the gang with which a pod is evicted; None for a pod that goes alone.

    A PodGroup of Kubernetes counts by itself: kube-scheduler starts no pod of one that does not exist.
    """
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return gang_of_pod_group(namespace, spec.scheduling_group.pod_group_name)
    controller = controller_of(metadata, namespace=namespace)
    if controller is None:
        return None
    labels = metadata.labels or _NO_KEYS
    named = _named_by_operator(labels, controller, metadata.name, namespace=namespace)
    if named is not None:
        return named
    if not _may_make_gangs(controller) or not _is_marked(labels, metadata.annotations or _NO_KEYS, controller):
        return None
    return gang_of_controller(namespace, controller.kind, controller.uid)


def _named_by_operator(labels: Mapping[str, str], controller: ObjectRef, pod: str, *, namespace: str) -> GangId | None:
    """Return the gang of an operator's label, where the controller is the one that the operator gives such a pod."""
    group, name = _group(controller), controller.name
    kind = (group, controller.kind)
    cluster, job, job_set = (labels.get(key) for key in (keys.RAY_CLUSTER, keys.KUBEFLOW_JOB, keys.JOBSET_NAME))
    if cluster and kind == ("ray.io", "RayCluster") and name == cluster:
        return gang_of_marker(namespace, keys.RAY_CLUSTER, cluster)
    if job and ((group == "kubeflow.org" and name == job) or (kind == _BATCH_JOB and name == f"{job}-launcher")):
        return gang_of_marker(namespace, keys.KUBEFLOW_JOB, job)
    if job_set and kind == _BATCH_JOB and name.startswith(f"{job_set}-"):
        return gang_of_marker(namespace, keys.JOBSET_NAME, job_set)
    leaders = labels.get(keys.LWS_NAME)
    if leaders and keys.LWS_GROUP in labels and kind == _STATEFUL_SET:
        if name == leaders:  # the leader, whose workers have a StatefulSet of its name
            return gang_of_marker(namespace, keys.LWS_NAME, pod)
        if name.startswith(f"{leaders}-"):
            return gang_of_marker(namespace, keys.LWS_NAME, name)
    return None


def _is_marked(labels: Mapping[str, str], annotations: Mapping[str, str], controller: ObjectRef) -> bool:
    if is_requested(annotations, domain_request(annotations)) or any(labels.get(key) for key in _USER_LABELS):
        return True
    makes_gangs = _group(controller) in _GANG_GROUPS or (_group(controller), controller.kind) == _BATCH_JOB
    return makes_gangs and any(annotations.get(key) for key in keys.GANG_ANNOTATIONS)


def _may_make_gangs(controller: ObjectRef) -> bool:
    """Whether objects of a kind make pods, as far as is known: of the built-in kinds, a few do."""
    group = _group(controller)
    is_built_in = "." not in group or group.endswith(".k8s.io")
    return not is_built_in or (group, controller.kind) in _BUILT_IN


def _group(controller: ObjectRef) -> str:
    return controller.api_version.rpartition("/")[0]
