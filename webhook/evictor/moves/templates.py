"""Pods as their controllers would create them now: read once from the API, and kept as long as the pods exist."""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.one_object import pod_path, read
from webhook.core.model.names import Uid
from webhook.core.model.original_request import as_asked
from webhook.core.model.pod import Pod
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.world import World
from webhook.simulation.simulate import Template, read_template

READ_AT_ONCE: Final = 200
"""Pods that are read for one plan; the others stay where they are until a later one."""

_AT_ONCE: Final = 16


class Templates:
    """What the index of pods does not keep of them: constraints, rules and volumes. None: it cannot be read."""

    def __init__(self, connection: ApiConnection, world: World) -> None:
        self._connection = connection
        self._world = world
        self._found: dict[Uid, Pod | None] = {}
        self._policy = ""

    def get(self, uid: Uid) -> Pod | None:
        """Return a pod that was read."""
        return self._found.get(uid)

    async def read(self, wanted: Iterable[ReclaimPod], *, kept: Iterable[Uid] = ()) -> None:
        """Read those of these pods that are not known yet, and forget all others but `kept`. Raises ClusterError."""
        pods = list(wanted)
        if self._policy != self._world.policy.hash:
            self._found, self._policy = {}, self._world.policy.hash
        known = {each.uid for each in pods}.union(kept)
        self._found = {uid: pod for uid, pod in self._found.items() if uid in known}
        slots = asyncio.Semaphore(_AT_ONCE)
        new = islice((each for each in pods if each.uid not in self._found), READ_AT_ONCE)
        await asyncio.gather(*(self._read(each, slots) for each in new))

    async def _read(self, gpu_pod: ReclaimPod, slots: asyncio.Semaphore) -> None:
        async with slots:
            path = pod_path(gpu_pod.namespace, gpu_pod.name)
            written = await read(self._connection, path, msgspec.json.decode, action="get pods")
        if not isinstance(written, dict):
            if written is not None:
                raise ClusterError("cannot get pods: the response is not an object")
            return
        found = read_template(written, namespace=gpu_pod.namespace, world=self._world)
        self._found[gpu_pod.uid] = None
        if isinstance(found, Template) and found.found.metadata.uid == gpu_pod.uid:
            self._found[gpu_pod.uid] = as_asked(found.pod, self._world.policy)
