"""Finds the topmost owner of an object: from a pod's controller up to the object that a person created."""

import logging
from collections import OrderedDict
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.kube.kinds.controllers import path_of
from webhook.kube.objects.events import ObjectRef
from webhook.kube.objects.owners import ACCEPT, owner_in

STEPS: Final = 5
"""Most owners followed upward: a Knative Service is four steps above the ReplicaSet of its pods."""

REMEMBERED: Final = 4096
"""Owners in the cache: an object's controller never changes while it has one."""

READ_SECONDS: Final = 5.0
"""Timeout of one read: the Event is useful without the topmost owner, too."""

_FINAL: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Statuses that a retry would not change: forbidden, no such object or API."""

_log: Final = logging.getLogger("webhook.cluster.writes.owners")


class OwnerLookup:
    """Reads owners and caches them. `reads` counts requests."""

    def __init__(self, connection: ApiConnection) -> None:
        self.reads = 0
        self._connection = connection
        self._known: OrderedDict[ObjectRef, ObjectRef | None] = OrderedDict()

    async def top(self, ref: ObjectRef) -> ObjectRef:
        """Return the topmost owner of an object; itself if it has none, or if that cannot be read."""
        for _ in range(STEPS):
            owner = await self._owner(ref)
            if owner is None:
                return ref
            ref = owner
        return ref

    async def _owner(self, ref: ObjectRef) -> ObjectRef | None:
        if ref in self._known:
            self._known.move_to_end(ref)
            return self._known[ref]
        path = path_of(ref)
        if path is None:
            return None
        self.reads += 1
        try:
            body = await self._connection.send(
                "GET", path, action=f"get {path.split('/')[-2]}", accept=ACCEPT, seconds=READ_SECONDS
            )
            found = owner_in(body, ref)
        except ValueError:
            found = None
        except ClusterError as error:
            _log.debug("owner of %s %s/%s not found: %s", ref.kind, ref.namespace, ref.name, error)
            if not (isinstance(error, ApiError) and error.status in _FINAL):
                return None  # not cached: the next read may succeed
            found = None
        self._known[ref] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found
