"""Reports each eviction, its beneficiary and the reason: in the log before any action, as Events, as metrics.

An Event is read by the team of its object: of the pods of others it says the team and the size. The log names them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.cluster.writes.evictions import Evicted, EvictionObstacle, Later, Outcome, Refused
from webhook.core.model.amounts import (
    NodeName,
    TeamName,
    Uid,
    Units,
    WorkloadName,
    gpu_number,
    gpus_text,
    plural,
    plural_gpus,
)
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.reclaim.costs import loses_no_work
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget
from webhook.core.reclaim.limit_plan import LimitMove
from webhook.core.reclaim.reclaim_plan import NO_NODES, Move, NoPlan, NotPlanned, Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.refused_nodes import unseen_text
from webhook.core.reclaim.snapshot import why_not
from webhook.core.reclaim.victims import Victim
from webhook.core.world.world import World
from webhook.evictor.cluster_view import EvictorContext
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects.events import EventReason

_NAMED: Final = 5
"""Nodes that a log line names."""

_WHAT_FAILED: Final = {
    EvictionObstacle.BUDGET: "its disruption budget does not allow it",
    EvictionObstacle.POLICY: "the cluster's rights or an admission policy forbid it",
    EvictionObstacle.FAILURE: "the API server fails to evict it, and to delete it",
}


class EvictionReporter:
    """Reports what one evictor does. `on_moved` reports at a time that a pod was evicted to be moved, and says why."""

    def __init__(self, context: EvictorContext) -> None:
        self.on_moved: Callable[[EvictionTarget, ReclaimPod, int], str] = lambda *_: "it makes room for another pod"
        self._notify = context.notify
        self._publish = context.report
        self._publish_on_controller = context.report_on_controller
        self._world = context.cluster_view.world
        self._reclaim_index = context.cluster_view.reclaim_index
        self._logs = context.logs
        self._metrics = context.metrics
        self._reported: dict[Uid, NoPlan] = {}

    def planned(self, found: Round, *, at: int, is_notice: bool) -> None:
        """Report plans, before anything is done."""
        sums = self._sums()
        for move in found.moves:
            waiting, unseen = move.waiting, found.unseen.get(move.waiting.uid, ())
            self._metrics.planned(waiting.team)
            self._logs.event.info("plan", **plan_fields(move), unseen=list(unseen[:_NAMED]))
            more = f". {unseen_text(unseen, waiting)}" if unseen else ""
            self._publish_on_both(waiting, EventReason.RECLAIMING, _plan_text(move, sums) + more)
            for victim in move.victims if is_notice else ():
                why = _reason(_asker(waiting), victim.team, victim.demand.gpus, sums)
                self._will_be_evicted(victim, at, why + self._of_minimum(victim.replica_of))

    def limits_planned(self, moves: Iterable[LimitMove], *, at: int, is_notice: bool) -> None:
        """Report plans for queued pods, before anything is done."""
        sums = self._sums()
        for move in moves:
            waiting, named = move.waiting, _by_team(move.victims)
            self._metrics.planned(waiting.team)
            victims = [f"{victim.namespace}/{victim.name}" for victim in move.victims]
            self._logs.event.info("limit plan", **_subject(waiting), limits=list(move.levels), victims=victims)
            what = f"To be evicted: {named}" if move.victims else "Pods that end free enough, and none is evicted"
            text = f"GPUs are freed under the limits of {' and '.join(move.levels)}: {sums.of(waiting.team)}. {what}"
            self._publish_on_both(waiting, EventReason.RECLAIMING, text)
            for victim in move.victims if is_notice else ():
                why = _reason(_asker(waiting), victim.team, victim.demand.gpus, sums)
                self._will_be_evicted(victim, at, why + self._of_minimum(victim.replica_of))

    def not_planned(
        self,
        refused: Iterable[NotPlanned],
        *,
        unseen: Mapping[Uid, Sequence[NodeName]] = NO_NODES,
        without_effect: int = 0,
    ) -> None:
        """Report pods for which nothing can be done, once for each cause.

        `unseen` are nodes that look free to them; `without_effect` is for how many pods room was made that they
        did not use, which was reported then.
        """
        there = {each.waiting.uid: each for each in refused if each.cause is not NoPlan.FITS}
        causes = Counter(each.cause for each in there.values())
        self._metrics.refused(causes | Counter({NoPlan.NO_EFFECT: without_effect}))
        self._reported = {uid: cause for uid, cause in self._reported.items() if uid in there}
        for uid, (waiting, cause) in there.items():
            if self._reported.get(uid) is not cause:
                self._reported[uid] = cause
                self._logs.event.info("no plan", **_subject(waiting), cause=str(cause))
                text = f"no borrowed GPUs can be reclaimed for it now: {why_not(waiting, cause, unseen.get(uid, ()))}"
                self._publish_on_both(waiting, EventReason.CANNOT_RECLAIM, text)

    def sent(self, target: EvictionTarget) -> "SentEviction":
        """Return what is to be reported of an eviction once it is answered: the watch may show its end before that."""
        return SentEviction(target, self._reclaim_index.get(target.uid), self._asker(target.beneficiary))

    def evicted(self, eviction: "SentEviction", outcome: Outcome, *, now: int, pause_seconds: float = 0.0) -> None:
        """Report the outcome of an eviction; a victim that was refused is left alone for `pause_seconds`."""
        target, gpu_pod, waiting = eviction
        named = {"namespace": target.namespace, "name": target.name, "uid": target.uid}
        match outcome:
            case Evicted.ACCEPTED | Evicted.DELETED | Evicted.OVERTAKEN:
                self._metrics.eviction(outcome)
                is_deleted = outcome is not Evicted.ACCEPTED
                how = {"outcome": str(outcome), "is_deleted": is_deleted}
                self._logs.event.info("evicted", **named, claim=target.beneficiary, **how)
                if gpu_pod is not None and target.is_moved:
                    why = self.on_moved(target, gpu_pod, now)
                    self._notify(NotifyKind.EVICTIONS, gpu_pod, why)
                elif gpu_pod is not None:
                    lost = gpu_pod.demand.gpus * gpu_pod.lost_seconds(now)
                    minimums = self._world.minimums
                    replicas = minimums.of(gpu_pod.pod.replica.workload)
                    is_surplus = replicas is not None and replicas.may_go > 0
                    if loses_no_work(gpu_pod.pod, minimums):
                        lost = 0
                    self._metrics.victim(gpu_pod.team, gpu_unit_seconds=lost, is_surplus=is_surplus)
                    if waiting is not None:
                        why = _reason(waiting, gpu_pod.team, gpu_pod.demand.gpus, self._sums())
                        why += self._of_minimum(gpu_pod.pod.replica.workload)
                        if outcome is Evicted.OVERTAKEN:
                            why += "; deleted, since it changed faster than the API server could evict it"
                        self._publish(target, EventReason.RECLAIMED, f"evicted: {why}")
                        text, series = f"pod {target.name} was evicted: {why}", f"for team {waiting.team}"
                        self._publish_on_controller(gpu_pod, EventReason.RECLAIMED, text, series=series)
                        self._notify(NotifyKind.EVICTIONS, gpu_pod, why)
            case Evicted.GONE:
                self._metrics.eviction(outcome)
            case Refused():
                self._metrics.eviction("refused")
                self.refused(target, outcome, pause_seconds=pause_seconds)
            case Later(why):
                self._metrics.eviction("later")
                self._logs.event.info("eviction put off", **named, why=why)

    def refused(self, target: EvictionTarget, refused: Refused, *, pause_seconds: float) -> None:
        """Report that the API server does not evict a victim, and when it is tried again."""
        self._logs.event.warning(
            "eviction refused",
            namespace=target.namespace,
            name=target.name,
            uid=target.uid,
            why=refused.why,
            obstacle=str(refused.obstacle),
            pause_seconds=round(pause_seconds),
        )
        text = (
            f"not evicted: {_WHAT_FAILED[refused.obstacle]}: {refused.why}. Another victim is chosen, and this one is "
            f"left alone for {pause_seconds:.0f} s"
        )
        self._publish(target, EventReason.EVICTION_REFUSED, text)

    def cancelled(self, target: EvictionTarget) -> None:
        """Report that an announced eviction is canceled."""
        text = "not evicted: " + ("it stays" if target.is_moved else "the pod that needed its room no longer waits")
        self._publish(target, EventReason.EVICTION_CANCELLED, text)

    def placed(self, beneficiary: Beneficiary, *, node: str, seconds: float) -> None:
        """Report that a waiting pod got its room."""
        self._metrics.placed(seconds)
        self._logs.event.info(
            "placed", namespace=beneficiary.namespace, name=beneficiary.name, node=node, seconds=round(seconds, 3)
        )

    def broken(self, beneficiaries: Iterable[Beneficiary], *, node: str, why: str) -> None:
        """Report that a hold is given up."""
        self._metrics.broken()
        self._logs.event.warning(
            "hold given up", node=node, pods=[f"{b.namespace}/{b.name}" for b in beneficiaries], why=why
        )

    def paused(self, team: TeamName, *, seconds: float) -> None:
        """Report that nothing is evicted for a team for a while: its pods did not use the room of earlier victims."""
        self._logs.event.warning("reclaim paused", team=team, seconds=round(seconds, 1))

    def gave_up(self, beneficiary: Beneficiary, *, seconds: float) -> None:
        """Report that nothing is evicted for a pod for a while: it did not use its room too often."""
        text = f"GPUs were freed for it and it did not use them; the next try is in {seconds:.0f} s"
        self._publish(beneficiary, EventReason.CANNOT_RECLAIM, text)

    def _asker(self, uid: Uid) -> "_Asker | None":
        """Return a waiting pod, in the queue or in kube-scheduler."""
        if (gpu_pod := self._reclaim_index.get(uid)) is not None:
            return _asker(gpu_pod)
        waiting = self._world.waiting.get(uid)
        if waiting is None:
            return None
        return _Asker(waiting.team, waiting.pod.demand.gpus)

    def _of_minimum(self, workload: WorkloadName | None) -> str:
        """Return what its workload's minimum means for a victim; "" where it has none."""
        replicas = None if workload is None else self._world.minimums.of(workload)
        return "" if replicas is None else f"; {replicas.statement.text}"

    def _will_be_evicted(self, victim: Victim, at: int, why: str) -> None:
        text = f"will be evicted at {rfc3339(at)}: {why}. Save your work until then"
        self._publish(victim, EventReason.EVICTION_PLANNED, text)

    def _publish_on_both(self, waiting: ReclaimPod, reason: EventReason, text: str) -> None:
        """Report what a pod waits for, on it and on its controller."""
        self._publish(waiting, reason, text)
        self._publish_on_controller(waiting, reason, text, series=reason)

    def _sums(self) -> "_Sums":
        return _Sums(self._world)


class SentEviction(NamedTuple):
    """A victim as it was when its eviction was sent, and what it goes for."""

    target: EvictionTarget
    gpu_pod: ReclaimPod | None
    waiting: "_Asker | None"


class _Sums:
    """Describes the shares of teams."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, team: TeamName) -> str:
        found = self._world.policy.team(team)
        share = 0 if found is None else found.gpus.guaranteed
        taken = gpus_text(self._world.usage(team).guaranteed)
        return f"team {team}'s guaranteed share is {gpus_text(share)}, {taken} taken"

    def over(self, team: TeamName) -> str:
        found, held = self._world.policy.team(team), self._world.usage(team).total
        over = max(0, held - (0 if found is None else found.gpus.guaranteed))
        return f"team {team} holds {plural_gpus(over)} beyond its share"


def plan_fields(move: Move) -> dict[str, object]:
    """Return a plan as the fields of a log line."""
    cost = move.cost
    return {
        **_subject(move.waiting),
        "node": move.node,
        "victims": [f"{victim.namespace}/{victim.name}" for victim in move.victims],
        "gangs_broken": cost.gangs,
        "below_minimum": cost.below,
        "trimmed": sorted({victim.replica_of for victim in move.victims if victim.replica_of is not None}),
        "surplus_gpus": gpu_number(cost.surplus),
        "lost_gpu_seconds": gpu_number(cost.lost_work),
        "breaks_workloads": move.breaks_workloads,
    }


def _subject(waiting: ReclaimPod) -> dict[str, object]:
    return {
        "team": waiting.team,
        "namespace": waiting.namespace,
        "name": waiting.name,
        "uid": waiting.uid,
        "gpus": gpu_number(waiting.demand.gpus),
    }


def _plan_text(move: Move, sums: _Sums) -> str:
    kept = f"its {plural_gpus(move.waiting.demand.gpus)} will be reserved on node {move.node}"
    if not move.victims:
        return f"{kept}: pods that end free them, and none is evicted"
    over = "; ".join(sums.over(team) for team in sorted({victim.team for victim in move.victims}))
    return f"{kept}: {sums.of(move.waiting.team)}; {over}. To be evicted: {_by_team(move.victims)}"


def _by_team(victims: Sequence[Victim]) -> str:
    """Return how many pods of each team are evicted, and of how many GPUs."""
    teams = sorted({victim.team for victim in victims})
    of = {team: [victim.demand.gpus for victim in victims if victim.team == team] for team in teams}
    return ", ".join(
        f"{plural(len(gpus), 'pod')} of team {team} ({plural_gpus(sum(gpus))})" for team, gpus in of.items()
    )


class _Asker(NamedTuple):
    """A waiting pod for which others are evicted."""

    team: TeamName
    gpus: Units


def _asker(waiting: ReclaimPod) -> _Asker:
    return _Asker(waiting.team, waiting.demand.gpus)


def _reason(waiting: _Asker, team: TeamName, gpus: Units, sums: _Sums) -> str:
    borrows = f"borrows {plural_gpus(gpus)}" if gpus else "shares GPUs that another pod borrows"
    return (
        f"team {waiting.team} takes its share back for a pod of {plural_gpus(waiting.gpus)} "
        f"({sums.of(waiting.team)}); this pod {borrows}, {sums.over(team)}"
    )
