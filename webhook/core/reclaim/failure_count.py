"""Counts failures by workload: what the API server says of each, and the evictions that it does not show yet.

Kept by events. An eviction counts from when it is made: between a pod's end and the status of its workload some time
passes, in which nobody may take that workload's budget for untouched.
"""

from collections.abc import Iterable, KeysView
from typing import Final

from webhook.core.model.names import Uid
from webhook.core.reclaim.failures import NOTHING_LEFT, FailureBudget, Loss, Remaining, WorkloadId
from webhook.core.reclaim.reclaim_pod import Tenant

_NO_PODS: Final[dict[Uid, bool]] = {}


class FailureCount:
    """The workloads that count failures, and their pods."""

    def __init__(self) -> None:
        self._budgets: dict[WorkloadId, FailureBudget] = {}
        self._evicted: dict[WorkloadId, int] = {}  # failures there will be at least
        self._pods: dict[WorkloadId, dict[Uid, bool]] = {}  # whether they are on their way out
        self._going: dict[WorkloadId, int] = {}

    def has_budget(self, tenant: Tenant) -> bool:
        """Tell whether a pod belongs to a workload that fails after some failures."""
        return tenant.workload is not None and (tenant.loss is not Loss.COUNTED or tenant.workload in self._budgets)

    def remaining(self, workloads: Iterable[WorkloadId], expected: Iterable[Tenant]) -> dict[WorkloadId, Remaining]:
        """Tell what these workloads have left; `expected` are pods that are going to be evicted."""
        found = {workload: self._remaining(workload) for workload in workloads}
        for tenant in expected:
            if tenant.workload in found:
                left, pods = found[tenant.workload]
                found[tenant.workload] = Remaining(left - (tenant.loss is not Loss.HARMLESS), pods - 1)
        return found

    def pods(self, workload: WorkloadId) -> KeysView[Uid]:
        """List the pods of a workload."""
        return self._pods.get(workload, _NO_PODS).keys()

    def set_pod(self, tenant: Tenant, *, is_going: bool) -> None:
        """Take in a pod, or what changed of it."""
        workload = tenant.workload
        if workload is not None:
            pods = self._pods.setdefault(workload, {})
            self._going[workload] = self._going.get(workload, 0) + is_going - pods.get(tenant.pod.uid, False)
            pods[tenant.pod.uid] = is_going

    def remove_pod(self, tenant: Tenant) -> None:
        """Forget a pod: it ended, or has another controller."""
        workload = tenant.workload
        if workload is not None and tenant.pod.uid in (pods := self._pods.get(workload, _NO_PODS)):
            self._going[workload] -= pods.pop(tenant.pod.uid)
            if not pods:
                del self._pods[workload], self._going[workload]

    def set_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> bool:
        """Take in a workload's budget; tells whether it began or ceased to have one."""
        is_change = (budget is None) == (workload in self._budgets)
        if budget is None:
            self._budgets.pop(workload, None)
            self._evicted.pop(workload, None)
        else:
            self._budgets[workload] = budget
            if self._evicted.get(workload, 0) <= budget.failed:
                self._evicted.pop(workload, None)
        return is_change

    def evicted(self, tenant: Tenant) -> None:
        """Take in that a pod is evicted, which its workload will count."""
        workload = tenant.workload
        if workload is not None and tenant.loss is Loss.COUNTED and (budget := self._budgets.get(workload)) is not None:
            self._evicted[workload] = max(self._evicted.get(workload, 0), budget.failed) + 1

    def _remaining(self, workload: WorkloadId) -> Remaining:
        pods = len(self._pods.get(workload, _NO_PODS)) - self._going.get(workload, 0)
        budget = self._budgets.get(workload)
        if budget is None:
            return Remaining(NOTHING_LEFT.left, pods)
        return Remaining(budget.limit - max(budget.failed, self._evicted.get(workload, 0)), pods)
