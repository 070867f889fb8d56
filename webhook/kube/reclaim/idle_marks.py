"""What is written where GPUs are not used: since when, on the pod; and on a Notebook, that it is stopped."""

from typing import Final

import msgspec

from webhook.core.model.names import Uid
from webhook.kube.objects import keys
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import is_plain
from webhook.kube.reclaim.holds import rfc3339

_NOTEBOOK_GROUP: Final = "kubeflow.org"


def idle_patch(uid: Uid, *, since: int | None) -> bytes:
    """Return a merge patch that says on a pod since when its GPUs are not used; None: they are."""
    annotations = {keys.IDLE_SINCE: None if since is None else rfc3339(since)}
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": annotations}})


def notebook_path(owner: ObjectRef) -> str | None:
    """Return the API path of a Notebook of Kubeflow; None for any other object."""
    group, _, version = owner.api_version.partition("/")
    if (group, owner.kind) != (_NOTEBOOK_GROUP, "Notebook") or not (is_plain(version) and is_plain(owner.name)):
        return None
    return f"/apis/{group}/{version}/namespaces/{owner.namespace}/notebooks/{owner.name}"


def stop_patch(owner: ObjectRef, *, at: int) -> bytes:
    """Return a merge patch that stops a Notebook as Kubeflow's culler does: its controller then runs no pod of it.

    A user starts it again by the button of Kubeflow's page, which removes the annotation.
    """
    return msgspec.json.encode({"metadata": {"uid": owner.uid, "annotations": {keys.NOTEBOOK_STOPPED: rfc3339(at)}}})
