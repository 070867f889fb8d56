"""The roll of all GPU pods for reclaim, kept by events: who may be sent away, who waits, who is leaving.

Whether a pod may be a victim is settled when it, the policy or a disruption budget changes, not when somebody waits:
a plan must not cost a walk over every pod. Gangs with a member that may not go are left out whole.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from webhook.core.names import Namespace, NodeName, Uid
from webhook.core.policy import ReclaimRules
from webhook.core.reclaim import Leaving
from webhook.core.tenant import Disruption, Tenant, victim_of
from webhook.core.victim import GangId, GuardId, Victim, Yards

STUCK_SECONDS: Final = 30
"""A pod still there so long after its grace period is stuck, as on a node that died: nobody may count on its room."""


class Roll:
    """Every GPU pod, sorted by what reclaim may do with it."""

    def __init__(self, rules: ReclaimRules) -> None:
        self.yards = Yards()
        self._rules = rules
        self._tenants: dict[Uid, Tenant] = {}
        self._waiting: dict[Uid, Tenant] = {}
        self._pinned: dict[Uid, Tenant] = {}
        self._terminating: dict[Uid, Tenant] = {}
        self._going: dict[Uid, Tenant] = {}
        self._disruptions: dict[Namespace, dict[str, Disruption]] = {}
        self._candidates: dict[GangId, dict[Uid, Victim]] = {}
        self._barred: dict[GangId, set[Uid]] = {}

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
        found = {each.guard: each.allowed for several in self._disruptions.values() for each in several.values()}
        for uid in {*self._going, *(uid for uid in chosen if not self.is_going(uid))}:
            for guard in self._guards(self._tenants[uid]):
                found[guard] -= 1
        return found

    # -- events

    def set(self, tenant: Tenant) -> None:
        """Take in a pod, or what changed of it."""
        uid = tenant.pod.uid
        going = self._going.get(uid)
        self._leave(uid)
        self._tenants[uid] = tenant
        if tenant.pod.is_terminating:
            self._terminating[uid] = tenant
        elif going is not None:
            self._going[uid] = tenant
        elif tenant.is_waiting:
            self._waiting[uid] = tenant
        if tenant.chosen and uid not in self._terminating and uid not in self._going:
            self._pinned[uid] = tenant
        if tenant.pod.node is not None:
            self._sort(tenant)

    def remove(self, uid: Uid) -> None:
        """Take a pod off: it ended."""
        self._leave(uid)
        self._tenants.pop(uid, None)

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
        if before is None or before.selector != budget.selector:
            self._sort_again(t for t in self._tenants.values() if t.pod.namespace == budget.namespace)

    def remove_disruption(self, namespace: Namespace, name: str) -> None:
        """Forget a disruption budget."""
        if self._disruptions.get(namespace, {}).pop(name, None) is not None:
            self._sort_again(t for t in self._tenants.values() if t.pod.namespace == namespace)

    def send_away(self, uid: Uid) -> None:
        """Expect a pod to go: its eviction was accepted, and the watch will show it."""
        tenant = self._tenants.get(uid)
        if tenant is not None and not tenant.pod.is_terminating:
            self._leave(uid)
            self._going[uid] = tenant

    def take_back(self, uid: Uid) -> None:
        """Expect a pod to go no longer: the watch has not shown it for too long."""
        tenant = self._going.pop(uid, None)
        if tenant is not None:
            self.set(tenant)

    # -- sorting

    def _leave(self, uid: Uid) -> None:
        tenant = self._tenants.get(uid)
        self._waiting.pop(uid, None)
        self._pinned.pop(uid, None)
        self._terminating.pop(uid, None)
        self._going.pop(uid, None)
        self.yards.remove(uid)
        if tenant is None or tenant.gang is None:
            return
        gang = tenant.gang
        members = self._candidates.get(gang, {})
        if uid in members:
            del members[uid]
            if not members:
                del self._candidates[gang]
        if (barred := self._barred.get(gang)) is not None and uid in barred:
            barred.remove(uid)
            if not barred:
                del self._barred[gang]
                self._admit(self._candidates.get(gang, {}))

    def _sort(self, tenant: Tenant) -> None:
        uid, gang = tenant.pod.uid, tenant.gang
        if tenant.pod.is_terminating or uid in self._going:
            return  # its gang may go without it: it goes already
        victim = victim_of(tenant, rules=self._rules, guards=self._guards(tenant))
        if gang is None:
            if victim is not None:
                self.yards.add(victim)
        elif victim is None:
            for member in self._candidates.get(gang, {}) if gang not in self._barred else ():
                self.yards.remove(member)
            self._barred.setdefault(gang, set()).add(uid)
        else:
            self._candidates.setdefault(gang, {})[uid] = victim
            if gang not in self._barred:
                self.yards.add(victim)

    def _admit(self, members: Mapping[Uid, Victim]) -> None:
        for victim in members.values():
            self.yards.add(victim)

    def _sort_again(self, tenants: Iterable[Tenant]) -> None:
        for tenant in list(tenants):
            self.set(tenant)

    def _guards(self, tenant: Tenant) -> tuple[GuardId, ...]:
        several = self._disruptions.get(tenant.pod.namespace)
        if not several:
            return ()
        return tuple([budget.guard for _, budget in sorted(several.items()) if budget.covers(tenant)])


def _is_stuck(tenant: Tenant, now: float) -> bool:
    return tenant.leaves_at is not None and now > tenant.leaves_at + STUCK_SECONDS
