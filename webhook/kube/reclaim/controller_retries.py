"""Retries of controllers whose pods were refused: the Event that is read and the annotation that is written. Pure."""

import msgspec

from webhook.core.admission.refused_owners import RefusedOwner
from webhook.core.reclaim.reclaim_pod import Controller
from webhook.kube.kinds.controllers import is_retried
from webhook.kube.objects import keys, objects
from webhook.kube.objects.events import EventReason, ObjectRef


class RefusalEvent(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an Event about a refused pod that name its controller."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    reason: str | None = None
    involved_object: ObjectRef = ObjectRef()
    related: ObjectRef | None = None


def refused_owner(event: RefusalEvent) -> RefusedOwner | None:
    """Return the controller of the refused pod; None if its kind is not retried.

    Users who may create Events may name any object in them, so the namespace is always that of the Event.
    """
    found = event.related or event.involved_object
    if event.reason != EventReason.REFUSED or not is_retried(found.api_version, found.kind):
        return None
    if not (event.metadata.namespace and found.name and found.uid):
        return None
    controller = Controller(found.api_version, found.kind, found.name, found.uid)
    return RefusedOwner(event.metadata.namespace, controller)


def retry_patch(uid: str, *, at: str) -> bytes:
    """Return a merge patch of one annotation, which succeeds only on the object with this UID."""
    return msgspec.json.encode({"metadata": {"uid": uid, "annotations": {keys.RETRY_AT: at}}})
