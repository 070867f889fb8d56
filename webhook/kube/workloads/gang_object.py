"""Where the object is that says how many pods a gang has: the one that makes them, or their PodGroup."""

from typing import Final, NamedTuple

from webhook.core.model.names import GangId
from webhook.core.model.pod import Pod
from webhook.kube.objects import keys
from webhook.kube.objects.owners import is_plain
from webhook.kube.pod.gangs import SCHEDULING_GROUP, marker_of


class GangObject(NamedTuple):
    """An object to read: its kind and name, and the paths where it may be, by API version.

    `uid` is set where the gang is that of one object, not of all that had its name.
    """

    kind: str
    name: str
    paths: tuple[str, ...]
    uid: str = ""


class _Place(NamedTuple):
    """A kind, its API groups with their versions, and its name in URLs."""

    kind: str
    apis: tuple[str, ...]
    plural: str


POD_GROUP: Final = "PodGroup"

_BY_MARKER: Final = {
    keys.JOBSET_NAME: _Place("JobSet", ("jobset.x-k8s.io/v1alpha2",), "jobsets"),
    keys.RAY_CLUSTER: _Place("RayCluster", ("ray.io/v1",), "rayclusters"),
    keys.VOLCANO_GROUP: _Place(POD_GROUP, ("scheduling.volcano.sh/v1beta1",), "podgroups"),
    keys.SCHEDULER_PLUGINS_GROUP: _Place(POD_GROUP, ("scheduling.x-k8s.io/v1alpha1",), "podgroups"),
    SCHEDULING_GROUP: _Place(POD_GROUP, (keys.GROUPS_API,), "podgroups"),
}
_LEADER_WORKER_SET: Final = _Place("LeaderWorkerSet", ("leaderworkerset.x-k8s.io/v1",), "leaderworkersets")
_MPI: Final = _Place("MPIJob", ("kubeflow.org/v2beta1", "kubeflow.org/v1"), "mpijobs")
_KUBEFLOW: Final = {
    kind: _Place(kind, ("kubeflow.org/v1",), f"{kind.lower()}s")
    for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
} | {"MPIJob": _MPI, "Job": _MPI}  # an MPIJob's launcher is the pod of a Job
_CONTROLLERS: Final = {
    "Job": _Place("Job", ("batch/v1",), "jobs"),
    "ReplicaSet": _Place("ReplicaSet", ("apps/v1",), "replicasets"),
    "ReplicationController": _Place("ReplicationController", ("v1",), "replicationcontrollers"),
    "StatefulSet": _Place("StatefulSet", ("apps/v1",), "statefulsets"),
}


def gang_object(pod: Pod, gang: GangId) -> GangObject | None:
    """Return the object that describes the gang of a pod; None where there is none, or none that Fairgate reads.

    It is in the pod's own namespace, whatever the pod claims.
    """
    key, value = marker_of(gang, pod.namespace)
    owner = pod.owner
    place, name, uid = _BY_MARKER.get(key), value, ""
    if key == keys.LWS_GROUP:
        place, name = _LEADER_WORKER_SET, pod.labels.get(keys.LWS_NAME, "")
    elif key == keys.KUBEFLOW_JOB:
        place = None if owner is None else _KUBEFLOW.get(owner.kind)
    elif place is None and owner is not None and owner.kind == key:
        place, name, uid = _CONTROLLERS.get(key), owner.name, value
    if place is None or not is_plain(name):
        return None
    return GangObject(place.kind, name, tuple(_path(api, pod.namespace, place.plural, name) for api in place.apis), uid)


def _path(api: str, namespace: str, plural: str, name: str) -> str:
    return f"/{'apis' if '/' in api else 'api'}/{api}/namespaces/{namespace}/{plural}/{name}"
