"""The moments at which jobs start: single pods, and gangs once none of their pods waits any more."""

from typing import NamedTuple

from webhook.core.explain.job_waits import Start, size_of
from webhook.core.model.amount import ONE_GPU, Units
from webhook.core.model.names import GangId, Uid


class JobPod(NamedTuple):
    """A pod that waits or is on a node. `created` is in seconds of Unix time, 0 where unknown."""

    gpus: Units
    created: int
    gang: GangId | None
    is_on_node: bool


class JobStarts:
    """Pods as they were last seen; of a gang those that started since it was counted last."""

    def __init__(self) -> None:
        self._pods: dict[Uid, JobPod] = {}
        self._waiting: dict[GangId, set[Uid]] = {}
        self._started: dict[GangId, list[JobPod]] = {}

    def set(self, uid: Uid, pod: JobPod | None, *, now: float) -> Start | None:
        """Note what a pod is now, None if it is gone; returns the job that started by that."""
        before = self._pods.pop(uid, None)
        if before is not None and before.gang is not None:
            self._leave(before.gang, uid)
        if pod is None:
            return None if before is None or before.gang is None else self._whole(before.gang, now)
        self._pods[uid] = pod
        is_start = pod.is_on_node and (before is None or not before.is_on_node)
        if pod.gang is None:
            return _start([pod], now) if is_start else None
        if not pod.is_on_node:
            self._waiting.setdefault(pod.gang, set()).add(uid)
        elif is_start:
            self._started.setdefault(pod.gang, []).append(pod)
        return self._whole(pod.gang, now)

    def _leave(self, gang: GangId, uid: Uid) -> None:
        waiting = self._waiting.get(gang, set())
        waiting.discard(uid)
        if not waiting:
            self._waiting.pop(gang, None)

    def _whole(self, gang: GangId, now: float) -> Start | None:
        return None if gang in self._waiting else _start(self._started.pop(gang, []), now)


def _start(pods: list[JobPod], now: float) -> Start | None:
    if not pods or not all(pod.created for pod in pods):
        return None
    gpus = float(sum(pod.gpus for pod in pods) / ONE_GPU)
    return Start(size_of(gpus), max(0.0, now - min(pod.created for pod in pods)))
