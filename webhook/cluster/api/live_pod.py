"""What became of a pod, as the API server itself says: asked where the view of the pods does not tell."""

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.core.model.pod import Resident
from webhook.kube.pod.existing_pods import Fate, decode_pod_state


async def fate_of(connection: ApiConnection, pod: Resident) -> Fate | None:
    """Get the pod that has this one's name now, which may be another; None where there is none.

    Raises ClusterError where nothing is known.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    try:
        return decode_pod_state(await connection.send("GET", path, action="get pods"))
    except ApiError as error:
        if not error.is_missing:
            raise
        return None
