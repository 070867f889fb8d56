"""Tells who loses what, for whom and why: in the log before anything is done, as Events, and as metrics."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from webhook.cluster.writes.evictions import Evicted, Later, Outcome, Refused
from webhook.cluster.writes.owner_events import OwnerEvent
from webhook.core.model.amount import Units, gpu_number, gpus_text
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.text import plural_gpus
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_outlook import WHY_NOT
from webhook.core.reclaim.reclaim_plan import Cause, Move, Waiting
from webhook.core.reclaim.reclaim_plan import Refused as NotPlanned
from webhook.core.reclaim.reclaim_pod import Tenant
from webhook.core.reclaim.reclaim_snapshot import over_share
from webhook.core.reclaim.reservation import Claim, Target
from webhook.core.reclaim.victim import Victim
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.kube.reclaim.holds import rfc3339
from webhook.observe.logs import Logs
from webhook.observe.reclaim import ReclaimMetrics

_NAMED = 5
"""Victims named in an Event; the log names all."""


class Teller(Protocol):
    """Tells people what happened."""

    def tell(self, event: Event) -> None:
        """Have an event written; returns at once."""
        ...


class Account:
    """Keeps the account of one evictor. `tell_owner` has the owners of victims hear of evictions."""

    def __init__(
        self,
        world: World,
        reclaim_index: ReclaimIndex,
        *,
        logs: Logs,
        teller: Teller,
        metrics: ReclaimMetrics,
        tell_owner: Callable[[OwnerEvent], None],
    ) -> None:
        self._world = world
        self._roll = reclaim_index
        self._logs = logs
        self._teller = teller
        self._tell_owner = tell_owner
        self._metrics = metrics
        self._told: dict[Uid, Cause] = {}

    def planned(self, moves: Iterable[Move], *, at: int, is_notice: bool) -> None:
        """Tell of plans, before anything is done."""
        sums = self._sums()
        for move in moves:
            waiting = move.waiting
            self._metrics.planned(waiting.team)
            self._logs.event.info("plan", **plan_fields(move))
            about = _about(waiting.uid, waiting.namespace, waiting.name)
            self._tell(about, EventType.NORMAL, EventReason.RECLAIMING, "Reclaim", _promise(move, sums))
            for victim in move.victims if is_notice else ():
                text = f"will be evicted at {rfc3339(at)}: {_for(waiting, victim, sums)}. Save your work until then"
                self._tell(_victim(victim), EventType.WARNING, EventReason.EVICTION_PLANNED, "Evict", text)

    def not_planned(self, refused: Iterable[NotPlanned]) -> None:
        """Tell of pods for which nothing can be done, once for each cause."""
        there = {each.waiting.uid: each for each in refused if each.cause is not Cause.FITS}
        self._metrics.refused(Counter(each.cause for each in there.values()))
        self._told = {uid: cause for uid, cause in self._told.items() if uid in there}
        for uid, (waiting, cause) in there.items():
            if self._told.get(uid) is not cause:
                self._told[uid] = cause
                self._logs.event.info("no plan", **_subject(waiting), cause=str(cause))
                about = _about(uid, waiting.namespace, waiting.name)
                text = f"no borrowed GPUs can be taken back for it now: {WHY_NOT[cause]}"
                self._tell(about, EventType.WARNING, EventReason.CANNOT_RECLAIM, "Reclaim", text)

    def evicted(self, target: Target, outcome: Outcome, *, now: int) -> None:
        """Tell what came of an eviction."""
        tenant, waiting = self._roll.get(target.uid), self._roll.get(target.claim)
        about = _about(target.uid, target.namespace, target.name)
        named = {"namespace": target.namespace, "name": target.name, "uid": target.uid}
        match outcome:
            case Evicted.ACCEPTED | Evicted.DELETED:
                is_deleted = outcome is Evicted.DELETED
                self._metrics.eviction("deleted" if is_deleted else "evicted")
                self._logs.event.info("evicted", **named, claim=target.claim, is_past_budgets=is_deleted)
                if tenant is not None:
                    since = max(tenant.started_at or tenant.pod.created, tenant.saved_at)
                    lost = tenant.pod.demand.gpus * max(0, now - since)
                    self._metrics.victim(tenant.team, gpu_unit_seconds=lost)
                    if waiting is not None:
                        why = _reason(waiting.waiting(), tenant.team, tenant.pod.demand.gpus, self._sums())
                        self._tell(about, EventType.WARNING, EventReason.RECLAIMED, "Evict", f"evicted: {why}")
                        self._tell_controller(tenant, f"pod {target.name} was evicted: {why}", waiting.team)
            case Evicted.GONE:
                self._metrics.eviction("gone")
            case Refused(why):
                self._metrics.eviction("refused")
                self.refused(target, why)
            case Later(why):
                self._metrics.eviction("later")
                self._logs.event.info("eviction put off", **named, why=why)

    def refused(self, target: Target, why: str) -> None:
        """Tell that a victim may not go, by the API's word."""
        self._logs.event.warning(
            "eviction refused", namespace=target.namespace, name=target.name, uid=target.uid, why=why
        )
        about = _about(target.uid, target.namespace, target.name)
        text = f"not evicted: the API server refused it, another victim is looked for: {why}"
        self._tell(about, EventType.WARNING, EventReason.EVICTION_REFUSED, "Evict", text)

    def cancelled(self, target: Target) -> None:
        """Tell that an announced eviction will not be."""
        about = _about(target.uid, target.namespace, target.name)
        text = "stays after all: the pod that it was to make room for waits no more"
        self._tell(about, EventType.NORMAL, EventReason.EVICTION_CANCELLED, "Evict", text)

    def seated(self, claim: Claim, *, node: str, seconds: float) -> None:
        """Tell that a waiting pod got its room."""
        self._metrics.seated(seconds)
        self._logs.event.info(
            "seated", namespace=claim.namespace, name=claim.name, node=node, seconds=round(seconds, 3)
        )

    def broken(self, claims: Iterable[Claim], *, node: str, why: str) -> None:
        """Tell that room which was kept will not be there."""
        self._metrics.broken()
        self._logs.event.warning("hold given up", node=node, pods=[f"{c.namespace}/{c.name}" for c in claims], why=why)

    def paused(self, team: TeamName, *, seconds: float) -> None:
        """Tell that nothing is evicted for a team for a while: others went for pods of its that used nothing."""
        self._logs.event.warning("reclaim paused", team=team, seconds=round(seconds, 1))

    def gave_up(self, claim: Claim, *, seconds: float) -> None:
        """Tell that a pod is left alone for a while: room for it was made in vain too often."""
        about = _about(claim.uid, claim.namespace, claim.name)
        text = f"room was made for it in vain, time after time; the next try is in {seconds:.0f} s"
        self._tell(about, EventType.WARNING, EventReason.CANNOT_RECLAIM, "Reclaim", text)

    def _tell(self, about: ObjectRef, kind: EventType, reason: EventReason, action: str, text: str) -> None:
        self._teller.tell(Event(about, kind, reason, action, text))

    def _tell_controller(self, tenant: Tenant, text: str, team: TeamName) -> None:
        """Tell who owns a victim; evictions for one team are told as one, with a count."""
        if (made_by := tenant.controller) is not None:
            api_version, kind, name, uid = made_by
            owner = ObjectRef(kind, tenant.pod.namespace, name, uid, api_version)
            self._tell_owner(OwnerEvent(owner, EventReason.RECLAIMED, "Evict", text, f"for team {team}"))

    def _sums(self) -> "_Sums":
        return _Sums(self._world)


class _Sums:
    """Says how teams stand."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._over = over_share(world)

    def of(self, team: TeamName) -> str:
        found = self._world.policy.team(team)
        share = 0 if found is None else found.gpus.guaranteed
        taken = gpus_text(self._world.usage(team).guaranteed)
        return f"team {team}'s guaranteed share is {gpus_text(share)}, {taken} taken"

    def over(self, team: TeamName) -> str:
        return f"team {team} holds {plural_gpus(self._over.get(team, 0))} beyond its share"


def plan_fields(move: Move) -> dict[str, object]:
    """Write a plan as the fields of a log line."""
    cost = move.cost
    return {
        **_subject(move.waiting),
        "node": move.node,
        "victims": [f"{victim.namespace}/{victim.name}" for victim in move.victims],
        "gangs_broken": cost.gangs,
        "surplus_gpus": gpu_number(cost.surplus),
        "lost_gpu_seconds": gpu_number(cost.lost_work),
        "breaks_workloads": move.breaks_workloads,
    }


def _subject(waiting: Waiting) -> dict[str, object]:
    return {
        "team": waiting.team,
        "namespace": waiting.namespace,
        "name": waiting.name,
        "uid": waiting.uid,
        "gpus": gpu_number(waiting.demand.gpus),
    }


def _promise(move: Move, sums: _Sums) -> str:
    kept = f"its {_gpus(move.waiting.demand.gpus)} will be kept free on node {move.node}"
    if not move.victims:
        return f"{kept}: the room is on its way and nobody is evicted"
    named = ", ".join(f"{victim.namespace}/{victim.name}" for victim in move.victims[:_NAMED])
    more = len(move.victims) - _NAMED
    rest = f" and {more} more" if more > 0 else ""
    over = "; ".join(sums.over(team) for team in sorted({victim.team for victim in move.victims}))
    return f"{kept}: {sums.of(move.waiting.team)}; {over}. To be evicted: {named}{rest}"


def _for(waiting: Waiting, victim: Victim, sums: _Sums) -> str:
    return _reason(waiting, victim.team, victim.demand.gpus, sums)


def _reason(waiting: Waiting, team: TeamName, gpus: Units, sums: _Sums) -> str:
    return (
        f"team {waiting.team} takes its share back for pod {waiting.namespace}/{waiting.name} of "
        f"{_gpus(waiting.demand.gpus)} ({sums.of(waiting.team)}); this pod borrows {_gpus(gpus)}, {sums.over(team)}"
    )


def _gpus(gpus: Units) -> str:
    return plural_gpus(gpus)


def _victim(victim: Victim) -> ObjectRef:
    return _about(victim.uid, victim.namespace, victim.name)


def _about(uid: Uid, namespace: str, name: str) -> ObjectRef:
    return ObjectRef("Pod", namespace, name, uid)
