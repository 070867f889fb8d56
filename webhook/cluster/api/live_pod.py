"""Reads the current state of a pod from the API server, for decisions that the watched state cannot answer."""

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.one_object import pod_path, read
from webhook.core.model.pod import Resident
from webhook.kube.pod.existing_pods import PodState, decode_pod_state


async def read_live_pod(connection: ApiConnection, pod: Resident) -> PodState | None:
    """Return the pod that has this one's name now, possibly another pod; None if there is none.

    Raises ClusterError if the API server does not answer.
    """
    return await read(connection, pod_path(pod.namespace, pod.name), decode_pod_state, action="get pods")
