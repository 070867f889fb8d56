"""What a pod has done: since when the present containers run, and since when it counts as running.

Kubelet's `startTime` is when it took the pod, before it pulled any image. Nothing of that time is work, and a container
that is started again begins again.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from webhook.kube.objects import objects
from webhook.kube.pod.pods import unix_seconds

_DEVICE: Final = b"/"
_CLAIMS: Final = b'"claims"'


class Work(NamedTuple):
    """Times are seconds of Unix time. `since` is when the last of its running containers started, 0 while none runs.

    `runtime_from` is when its containers ran first, and where their statuses do not say it, when kubelet took the pod:
    a container that is started again earns no further minimum runtime. `is_working`: one of them runs.
    """

    since: int = 0
    runtime_from: int = 0
    is_working: bool = False


def work_of(pod: objects.Pod) -> Work:
    """Return what a pod's own containers have done; where it has any with devices, only those count.

    Without statuses of containers, as in older files, a pod that is not Pending runs since kubelet took it.
    """
    status = pod.status
    if status is None:
        return Work()
    taken = unix_seconds(status.start_time or "")
    if not status.container_statuses:
        return Work(taken, taken, status.phase != "Pending")
    with_devices = {each.name for each in pod.spec.containers if _has_devices(each)}
    counted = [each for each in status.container_statuses if not with_devices or each.name in with_devices]
    runs = [each.state.running for each in counted if each.state is not None and each.state.running is not None]
    since = max((unix_seconds(run.started_at or "") for run in runs), default=0)
    return Work(since, _first_start(counted) or taken, bool(runs))


def _has_devices(container: objects.Container) -> bool:
    resources = bytes(container.resources)
    return _DEVICE in resources or _CLAIMS in resources


def _first_start(containers: Iterable[objects.ContainerStatus]) -> int:
    """Return when the first of containers started that were never started again; 0 where one was, or none started."""
    found = list(containers)
    if any(each.restart_count for each in found):
        return 0
    runs = (each.state.running or each.state.terminated for each in found if each.state is not None)
    return min((unix_seconds(each.started_at or "") for each in runs if each is not None), default=0)
