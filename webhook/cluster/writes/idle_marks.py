"""Writes on pods since when their GPUs are not used, and stops Notebooks."""

from webhook.cluster.api.client import MERGE_PATCH, ApiConnection
from webhook.cluster.api.one_object import pod_path
from webhook.core.model.pod import Resident
from webhook.kube.objects.events import ObjectRef
from webhook.kube.pod.tier_patch import FIELD_MANAGER
from webhook.kube.reclaim.idle_marks import idle_patch, notebook_path, stop_patch


async def mark_idle(connection: ApiConnection, pod: Resident, *, since: int | None) -> None:
    """Write since when the GPUs of a pod are not used; None: they are. Raises ClusterError."""
    body = idle_patch(pod.uid, since=since)
    path = pod_path(pod.namespace, pod.name)
    await connection.send(
        "PATCH", path, body, action="patch pods", content_type=MERGE_PATCH, params={"fieldManager": FIELD_MANAGER}
    )


async def stop_notebook(connection: ApiConnection, owner: ObjectRef, *, at: int) -> None:
    """Stop a Notebook, so that no pod of it is created again; no other object is touched. Raises ClusterError."""
    if (path := notebook_path(owner)) is not None:
        body = stop_patch(owner, at=at)
        await connection.send("PATCH", path, body, action="patch notebooks.kubeflow.org", content_type=MERGE_PATCH)
