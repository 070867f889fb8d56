"""Failures by workload: those in its status, and the evictions that its status does not show yet.

Kept by events. An eviction counts from when it is made: the status of a workload shows it only some time later, and its
failure budget must not look untouched until then.
"""

from collections.abc import Iterable, KeysView
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.reclaim.failures import NOTHING_LEFT, FailureBudget, Loss, Remaining, WorkloadId
from webhook.core.reclaim.reclaim_pod import ReclaimPod

_NO_PODS: Final[dict[Uid, bool]] = {}


class FailureCount:
    """The workloads that count failures, and their pods."""

    def __init__(self) -> None:
        self._budgets: dict[WorkloadId, FailureBudget] = {}
        self._evicted: dict[WorkloadId, int] = {}  # failures there will be at least
        self._pods: dict[WorkloadId, dict[Uid, bool]] = {}  # whether they leave
        self._going: dict[WorkloadId, int] = {}

    def has_budget(self, gpu_pod: ReclaimPod) -> bool:
        """Whether a pod belongs to a workload that fails after some failures."""
        return gpu_pod.workload is not None and (gpu_pod.loss is not Loss.COUNTED or gpu_pod.workload in self._budgets)

    def remaining(self, workloads: Iterable[WorkloadId], expected: Iterable[ReclaimPod]) -> dict[WorkloadId, Remaining]:
        """Return what these workloads have left; `expected` are pods that will be evicted."""
        found = {workload: self._remaining(workload) for workload in workloads}
        for gpu_pod in expected:
            if gpu_pod.workload in found:
                left, pods = found[gpu_pod.workload]
                found[gpu_pod.workload] = Remaining(left - (gpu_pod.loss is not Loss.HARMLESS), pods - 1)
        return found

    def pods(self, workload: WorkloadId) -> KeysView[Uid]:
        """Return the pods of a workload."""
        return self._pods.get(workload, _NO_PODS).keys()

    def set_pod(self, gpu_pod: ReclaimPod, *, is_going: bool) -> None:
        """Add a pod, or what changed of it."""
        workload = gpu_pod.workload
        if workload is not None:
            pods = self._pods.setdefault(workload, {})
            self._going[workload] = self._going.get(workload, 0) + is_going - pods.get(gpu_pod.uid, False)
            pods[gpu_pod.uid] = is_going

    def remove_pod(self, gpu_pod: ReclaimPod) -> None:
        """Remove a pod that ended or has another controller."""
        workload = gpu_pod.workload
        if workload is not None and gpu_pod.uid in (pods := self._pods.get(workload, _NO_PODS)):
            self._going[workload] -= pods.pop(gpu_pod.uid)
            if not pods:
                del self._pods[workload], self._going[workload]

    def set_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> bool:
        """Set a workload's budget; return whether it began or ceased to have one."""
        is_change = (budget is None) == (workload in self._budgets)
        if budget is None:
            self._budgets.pop(workload, None)
            self._evicted.pop(workload, None)
        else:
            self._budgets[workload] = budget
            if self._evicted.get(workload, 0) <= budget.failed:
                self._evicted.pop(workload, None)
        return is_change

    def evicted(self, gpu_pod: ReclaimPod) -> None:
        """Count the eviction of a pod, which its workload's status will show."""
        workload = gpu_pod.workload
        if (
            workload is not None
            and gpu_pod.loss is Loss.COUNTED
            and (budget := self._budgets.get(workload)) is not None
        ):
            self._evicted[workload] = max(self._evicted.get(workload, 0), budget.failed) + 1

    def _remaining(self, workload: WorkloadId) -> Remaining:
        pods = len(self._pods.get(workload, _NO_PODS)) - self._going.get(workload, 0)
        budget = self._budgets.get(workload)
        if budget is None:
            return Remaining(NOTHING_LEFT.left, pods)
        return Remaining(budget.limit - max(budget.failed, self._evicted.get(workload, 0)), pods)
