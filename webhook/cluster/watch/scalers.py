"""What scales workloads, from which their minimums are read."""

from collections.abc import Callable, Collection

from webhook.cluster.watch.kinds import grouped_kind, path_of
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.names import Uid, WorkloadName
from webhook.core.world.minimums import Minimums
from webhook.kube.workloads.scalers import SCALER_API, SCALERS, Autoscaler, scaling_of

Noted = Callable[[WorkloadName, bool, Collection[Uid]], None]
"""Receives a workload, whether something scales it now, and its pods."""


def scaler_kind(minimums: Minimums, note: Noted | None = None) -> WatchedKind[Autoscaler]:
    """Watch HorizontalPodAutoscalers; `note` is called after each change of one."""

    def changed(workload: WorkloadName | None) -> None:
        if note is not None and workload is not None:
            note(workload, minimums.is_scaled(workload), minimums.pods(workload))

    def apply(found: Autoscaler) -> bool:
        scaling, handle = scaling_of(found), path_of(found)
        before = minimums.scaled_by(handle)
        minimums.set_scaler(handle, scaling.workload, scaling.minimum)
        for workload in {before, scaling.workload}:
            changed(workload)
        return True

    def remove(handle: str) -> None:
        changed(minimums.remove_scaler(handle))

    return grouped_kind(SCALERS, SCALER_API, Autoscaler, apply=apply, remove=remove)
