"""The roll of all GPU pods for reclaim, kept by events: who may be sent away, who waits, who is leaving.

Whether a pod may be a victim is settled when it, the policy or a disruption budget changes, not when somebody waits:
a plan must not cost a walk over every pod. A member that may not go shields nobody else of its gang.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeVar

from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.model.policy import ReclaimRules
from webhook.core.reclaim.failure_count import FailureCount
from webhook.core.reclaim.failures import FailureBudget, Remaining, WorkloadId
from webhook.core.reclaim.reclaim_plan import Leaving
from webhook.core.reclaim.reclaim_pod import Disruption, Tenant, victim_of
from webhook.core.reclaim.victim import GangId, GuardId, VictimIndex

_Key = TypeVar("_Key", Namespace, GangId)

BUDGETS: Final = 100
"""PodDisruptionBudgets of one namespace that are looked at, the first by name: whoever may create one may create
thousands. What the others say, the API server says when a pod is to be evicted."""

STUCK_SECONDS: Final = 30
"""A pod still there so long after its grace period is stuck, as on a node that died: nobody may count on its room."""


class ReclaimIndex:
    """Every GPU pod, sorted by what reclaim may do with it."""

    def __init__(self, rules: ReclaimRules) -> None:
        self.victim_index = VictimIndex()
        self._rules = rules
        self._tenants: dict[Uid, Tenant] = {}
        self._waiting: dict[Uid, Tenant] = {}
        self._pinned: dict[Uid, Tenant] = {}
        self._terminating: dict[Uid, Tenant] = {}
        self._going: dict[Uid, Tenant] = {}
        self._disruptions: dict[Namespace, dict[str, Disruption]] = {}
        self._budget_names: dict[Namespace, list[str]] = {}  # in order
        self._gangs: dict[GangId, set[Uid]] = {}
        self._by_namespace: dict[Namespace, set[Uid]] = {}
        self._failures = FailureCount()

    # -- what plans read

    def get(self, uid: Uid) -> Tenant | None:
        """Find a pod."""
        return self._tenants.get(uid)

    def pinned(self) -> Iterable[Tenant]:
        """List the pods that have no node yet, and were bound to some."""
        return self._pinned.values()

    def waiting(self) -> Iterable[Tenant]:
        """List the guaranteed pods without a node."""
        return self._waiting.values()

    def members(self, gang: GangId) -> Iterable[Tenant]:
        """List the pods of a gang, whatever becomes of them."""
        return [self._tenants[uid] for uid in self._gangs.get(gang, ())]

    def leaving(self, *, now: float) -> dict[NodeName, list[Leaving]]:
        """List the pods whose room is on its way, by node; those that are stuck are not among them."""
        found: dict[NodeName, list[Leaving]] = {}
        for tenant in chain(self._terminating.values(), self._going.values()):
            pod = tenant.pod
            if pod.node is not None and not _is_stuck(tenant, now):
                found.setdefault(pod.node, []).append(Leaving(pod.uid, pod.node, pod.demand))
        return found

    def empty_at(self, *, now: float) -> dict[NodeName, int]:
        """Tell when the last pod that leaves a node must be gone, for the nodes that somebody leaves."""
        found: dict[NodeName, int] = {}
        for tenant in self._terminating.values():
            node = tenant.pod.node
            if node is not None and not _is_stuck(tenant, now):
                found[node] = max(found.get(node, 0), tenant.leaves_at or 0)
        return found

    def going(self) -> Iterable[Uid]:
        """List the pods whose evictions were accepted and not seen yet."""
        return self._going.keys()

    def is_going(self, uid: Uid) -> bool:
        """Tell whether a pod is on its way out, or gone already."""
        return uid not in self._tenants or uid in self._going or uid in self._terminating

    def staying(self, uid: Uid) -> Tenant | None:
        """Find a pod that is there and not on its way out."""
        return None if self.is_going(uid) else self._tenants[uid]

    def allowances(self, chosen: Iterable[Uid] = ()) -> dict[GuardId, int]:
        """Tell how many victims each disruption budget lets go once `chosen` and those that go unseen are gone."""
        found = {each.guard: each.allowed for namespace in self._disruptions for each in self._budgets(namespace)}
        for uid in {*self._going, *(uid for uid in chosen if not self.is_going(uid))}:
            for guard in self._guards(self._tenants[uid]):
                found[guard] -= 1
        return found

    def failures(self, chosen: Iterable[Uid] = ()) -> dict[WorkloadId, Remaining]:
        """Tell what the victims' workloads have left of their budgets for failures once `chosen` are gone."""
        expected = [tenant for uid in chosen if (tenant := self.staying(uid)) is not None]
        return self._failures.remaining(self.victim_index.workloads(), expected)

    # -- events

    def set(self, tenant: Tenant) -> None:
        """Take in a pod, or what changed of it."""
        uid = tenant.pod.uid
        going = self._going.get(uid)
        self._leave(uid)
        self._enter(tenant)
        if tenant.is_leaving(self._rules):
            self._terminating[uid] = tenant
        elif going is not None:
            self._going[uid] = tenant
        elif tenant.is_waiting:
            self._waiting[uid] = tenant
        self._failures.set_pod(tenant, is_going=uid in self._terminating or uid in self._going)
        if tenant.chosen and uid not in self._terminating and uid not in self._going:
            self._pinned[uid] = tenant
        if tenant.pod.node is not None:
            self._sort(tenant)

    def remove(self, uid: Uid) -> None:
        """Take a pod off: it ended."""
        self._leave(uid)
        tenant = self._tenants.pop(uid, None)
        if tenant is not None:
            self._failures.remove_pod(tenant)
            _unlist(self._by_namespace, tenant.pod.namespace, uid)
            _unlist(self._gangs, tenant.gang, uid)

    def set_rules(self, rules: ReclaimRules) -> None:
        """Judge from now on by other rules."""
        if rules != self._rules:
            self._rules = rules
            self._sort_again(self._tenants.values())

    def set_disruption(self, budget: Disruption) -> None:
        """Take in a disruption budget; its pods are sorted again only if it covers others than before."""
        several = self._disruptions.setdefault(budget.namespace, {})
        before = several.get(budget.name)
        several[budget.name] = budget
        names = self._budget_names.setdefault(budget.namespace, [])
        if before is None:
            insort(names, budget.name)
        is_new = before is None or before.selector != budget.selector
        if is_new and bisect_left(names, budget.name) < BUDGETS:
            self._sort_again(map(self._tenants.__getitem__, self._by_namespace.get(budget.namespace, ())))

    def remove_disruption(self, namespace: Namespace, name: str) -> None:
        """Forget a disruption budget."""
        if self._disruptions.get(namespace, {}).pop(name, None) is not None:
            names = self._budget_names[namespace]
            del names[place := bisect_left(names, name)]
            if place >= BUDGETS:
                return
            self._sort_again(map(self._tenants.__getitem__, self._by_namespace.get(namespace, ())))

    def set_failure_budget(self, workload: WorkloadId, budget: FailureBudget | None) -> None:
        """Take in how many failures a workload survives; None: any number, or it is gone."""
        if self._failures.set_budget(workload, budget):
            self._sort_again(map(self._tenants.__getitem__, self._failures.pods(workload)))

    def send_away(self, uid: Uid) -> None:
        """Expect a pod to go: its eviction was accepted, and the watch will show it."""
        tenant = self._tenants.get(uid)
        if tenant is not None and uid not in self._terminating:
            self._failures.evicted(tenant)
            self._failures.set_pod(tenant, is_going=True)
            self._leave(uid)
            self._going[uid] = tenant

    def take_back(self, uid: Uid) -> None:
        """Expect a pod to go no longer: the watch has not shown it for too long."""
        tenant = self._going.pop(uid, None)
        if tenant is not None:
            self.set(tenant)

    # -- sorting

    def _enter(self, tenant: Tenant) -> None:
        uid, before = tenant.pod.uid, self._tenants.get(tenant.pod.uid)
        if before is not None and before.gang != tenant.gang:  # labels may change
            _unlist(self._gangs, before.gang, uid)
        if before is not None and before.workload != tenant.workload:
            self._failures.remove_pod(before)
        self._tenants[uid] = tenant
        self._by_namespace.setdefault(tenant.pod.namespace, set()).add(uid)
        if tenant.gang is not None:
            self._gangs.setdefault(tenant.gang, set()).add(uid)

    def _leave(self, uid: Uid) -> None:
        self._waiting.pop(uid, None)
        self._pinned.pop(uid, None)
        self._terminating.pop(uid, None)
        self._going.pop(uid, None)
        self.victim_index.remove(uid)

    def _sort(self, tenant: Tenant) -> None:
        if tenant.pod.uid not in self._going:
            has_budget = self._failures.has_budget(tenant)
            victim = victim_of(tenant, rules=self._rules, guards=self._guards(tenant), has_budget=has_budget)
            if victim is not None:
                self.victim_index.add(victim)

    def _sort_again(self, tenants: Iterable[Tenant]) -> None:
        for tenant in list(tenants):
            self.set(tenant)

    def _guards(self, tenant: Tenant) -> tuple[GuardId, ...]:
        known = self._budgets(tenant.pod.namespace)
        return tuple(islice((budget.guard for budget in known if budget.covers(tenant)), 2))

    def _budgets(self, namespace: Namespace) -> Iterator[Disruption]:
        several = self._disruptions.get(namespace, {})
        return (several[name] for name in islice(self._budget_names.get(namespace, ()), BUDGETS))


def _unlist(places: dict[_Key, set[Uid]], key: _Key | None, uid: Uid) -> None:
    members = places.get(key) if key is not None else None
    if members is not None and key is not None:
        members.discard(uid)
        if not members:
            del places[key]


def _is_stuck(tenant: Tenant, now: float) -> bool:
    return tenant.leaves_at is not None and now > tenant.leaves_at + STUCK_SECONDS
