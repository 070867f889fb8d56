"""An explanation as data: the stable format of `-o json` and `-o yaml`. Messages for people are in steps.py."""

from typing import Annotated, Literal, assert_never

import msgspec

from webhook.cli.explain.outcome import ExplainedSubject, MoveReport, Word, is_announced, verdict_of
from webhook.cli.explain.subjects import PodState
from webhook.cli.grid import ReasonReport
from webhook.cli.queue.rows import HolderReport, WaitingReport, waiting_report
from webhook.core.admission.pod_rules import OldPods
from webhook.core.explain.candidates import Candidates
from webhook.core.explain.explanation import PoolStep
from webhook.core.model.amounts import format_gpus, format_limit
from webhook.core.model.constraints import Tier
from webhook.core.model.demand import Demand
from webhook.core.placement.fragmentation import WEIGHT, WHOLE
from webhook.core.reclaim.snapshot import Impossible, Possible, RoomKept
from webhook.core.world.minimums import Replicas
from webhook.kube.nodes.holds import rfc3339


class LimitReport(msgspec.Struct, rename="camel"):
    """A limit, what counts towards it already, and whether the pod fits."""

    of: str
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    taken: str
    with_the_pod: str
    holds: bool


class NodeReport(msgspec.Struct, rename="camel"):
    """A node that has room, the best first. Costs are GPUs; null where nothing is compared."""

    name: str
    cost: float | None
    useless: Annotated[
        float | None, msgspec.Meta(description="GPUs that later pods can no longer use, those that it takes included")
    ]
    mixing: Annotated[
        float | None, msgspec.Meta(description="for sharing a node with the other tier: more than all else together")
    ]
    left_over: Annotated[float | None, msgspec.Meta(description="for what would be left over: a tie-breaker")]


class FilteredReport(msgspec.Struct):
    """A cause that excludes nodes, how many, and which."""

    cause: str
    nodes: int
    names: list[str]


class NodeAnswer(msgspec.Struct):
    """The node of --node: `obstacles` are all causes that exclude it, `place` is its rank among the best."""

    name: str
    obstacles: list[str]
    place: Annotated[int | None, msgspec.Meta(description="1 is the first choice; null where it has no room")]


class EvictedReport(msgspec.Struct):
    """A pod that is evicted for another one; `at` is when, null without a plan in progress."""

    pod: str
    at: str | None


class ReclaimReport(msgspec.Struct, rename="camel"):
    """What reclaim can do for a pod that waits."""

    state: Annotated[
        Literal["kept", "possible", "impossible"],
        msgspec.Meta(description="kept: a plan is under way; possible: one could be made now"),
    ]
    node: str | None
    gpus: str
    teams: Annotated[
        list[str], msgspec.Meta(description="teams whose borrowed GPUs can be reclaimed, if there is no plan yet")
    ]
    evicted: list[EvictedReport]
    since: Annotated[str | None, msgspec.Meta(description="when the plan was made")]
    why: Annotated[str | None, msgspec.Meta(description="why nothing can be done")]
    leader: Annotated[str | None, msgspec.Meta(description="the leading evictor; empty: none leads; null: not known")]


class EvictionReport(msgspec.Struct, rename="camel"):
    """The eviction that is announced for the pod, or was asked for."""

    at: str
    done: Annotated[bool, msgspec.Meta(description="true: it was evicted, and is ending")]
    team: str | None
    beneficiary: str | None
    moves_to: Annotated[str | None, msgspec.Meta(description="the node that keeps a place for its replacement")]


class ReplicasReport(msgspec.Struct):
    """The replicas of the pod's workload, of which some are to stay."""

    minimum: int
    pods: Annotated[int, msgspec.Meta(description="that exist or wait in line; the minimum counts if they are more")]
    ready: int
    spare: Annotated[int, msgspec.Meta(description="ready ones that may go before other pods")]


class EventReport(msgspec.Struct):
    """An Event of Fairgate about the object."""

    reason: str
    message: str
    count: int
    last: str


class PoolReport(msgspec.Struct, rename="camel"):
    """A pool; `closed` is why the pod may not use it."""

    name: Annotated[str, msgspec.Meta(description="empty for the whole cluster, where policy has no pools")]
    closed: str | None
    with_room: int | None
    best: list[NodeReport]
    filtered: list[FilteredReport]
    node: Annotated[NodeAnswer | None, msgspec.Meta(description="what --node asked for")]


class DomainReport(msgspec.Struct, rename="camel"):
    """A domain, such as a rack, and how many of the gang's waiting pods it has room for."""

    level: Annotated[str, msgspec.Meta(description="the key of the node label")]
    name: Annotated[str, msgspec.Meta(description="KEY=VALUE, with those of larger domains if several have the value")]
    holds: int
    enough: Annotated[bool, msgspec.Meta(description="whether it has room for all of them")]


class UpdateReport(msgspec.Struct, rename="camel"):
    """The pods that the update of the pod's Deployment replaces."""

    replica_sets: list[str]
    gpus: str


class ExcluderReport(msgspec.Struct, rename="camel"):
    """A pod whose required anti-affinity keeps others off the nodes of its domain."""

    namespace: str
    name: str
    key: Annotated[str, msgspec.Meta(description="the topology key of that term")]
    nodes: Annotated[int, msgspec.Meta(description="in the domain")]


class ExplanationReport(msgspec.Struct, rename="camel"):
    """One decision, step by step."""

    subject: str
    count: int | None
    pods: Annotated[str | None, msgspec.Meta(description="of a workload of the cluster: how many of its pods exist")]
    state: Annotated[PodState | None, msgspec.Meta(description="of a pod that exists: what it does now")]
    node: Annotated[str | None, msgspec.Meta(description="of a pod that exists: where it is, null for on no node")]
    since: Annotated[str | None, msgspec.Meta(description="of a pod that exists: since when, null if not known")]
    stage: Annotated[
        str | None, msgspec.Meta(description="of a pod that exists and is not in line: where it is in its life")
    ]
    stage_message: Annotated[str | None, msgspec.Meta(description="what is unusual about that")]
    idle: Annotated[str | None, msgspec.Meta(description="of a pod that does not use its GPUs: since when, and so on")]
    demand: dict[str, str]
    requests: dict[str, int]
    gpus: str
    team: str | None
    user: str | None
    outcome: Annotated[Word, msgspec.Meta(description="of a pod that exists and is not in line: if it came now")]
    tier: Tier | None
    nodes: list[str]
    reasons: list[ReasonReport]
    warnings: list[ReasonReport]
    limits: list[LimitReport]
    holders: list[HolderReport]
    pools: list[PoolReport]
    domains: Annotated[
        list[DomainReport],
        msgspec.Meta(description="where the pod's gang may be placed together, the best ten by level"),
    ]
    kept_off_by: Annotated[list[ExcluderReport], msgspec.Meta(description="that may be listed, if it would not run")]
    smaller: Annotated[dict[str, str] | None, msgspec.Meta(description="the largest lesser request that would run now")]
    elsewhere: Annotated[list[str], msgspec.Meta(description="pools in which it would run now")]
    update: Annotated[
        UpdateReport | None, msgspec.Meta(description="where the pod would not run beside them: those it replaces")
    ]
    reclaim: ReclaimReport | None
    moves: Annotated[
        list[MoveReport] | None,
        msgspec.Meta(
            description="moves of other pods that would make room; by policy the evictor makes them, or an admin"
        ),
    ]
    eviction: EvictionReport | None
    replicas: Annotated[
        ReplicasReport | None, msgspec.Meta(description="of a pod that exists, where its workload has a minimum")
    ]
    line: Annotated[WaitingReport | None, msgspec.Meta(description="of a pod that waits in line")]
    events: list[EventReport]


def report_of(explained: ExplainedSubject) -> ExplanationReport:
    """Return an explanation as data."""
    subject, explanation, existing = explained.subject, explained.explanation, explained.subject.existing
    verdict = verdict_of(explanation.decision)
    gpus = explanation.pod.demand.gpus
    return ExplanationReport(
        subject=subject.title,
        count=subject.count,
        pods=subject.pods or None,
        state=None if existing is None else existing.state,
        node=None if existing is None else existing.node or None,
        since=None if existing is None else existing.since or None,
        stage=None if existing is None else existing.stage or None,
        stage_message=None if existing is None else existing.stage_text or None,
        idle=None if existing is None else existing.idle_text or None,
        demand=_devices(explanation.pod.demand),
        requests={str(name): amount for name, amount in explanation.pod.demand.requests},
        gpus=format_gpus(gpus),
        team=None if explanation.team is None else explanation.team.name,
        user=explanation.user,
        outcome=verdict.word,
        tier=verdict.tier,
        nodes=list(verdict.nodes),
        reasons=[ReasonReport.of(reason) for reason in verdict.reasons],
        warnings=[ReasonReport.of(reason) for reason in verdict.warnings],
        limits=[
            LimitReport(
                limit.subject.text,
                format_limit(limit.limit),
                format_gpus(limit.taken),
                format_gpus(limit.taken + gpus),
                not limit.is_exceeded_by(gpus),
            )
            for limit in explanation.limits
        ],
        holders=[HolderReport(name, format_gpus(held)) for name, held in explanation.holders],
        pools=[_pool(step) for step in explanation.pools],
        kept_off_by=[ExcluderReport(*each) for each in explanation.excluders],
        domains=[
            DomainReport(level.key, room.name, room.holds, room.is_enough)
            for level in (explanation.domains.levels if explanation.domains is not None else ())
            for room in level.rooms
        ],
        smaller=None if explanation.smaller is None else _devices(explanation.smaller),
        elsewhere=list(explanation.elsewhere),
        update=_update(explanation.update),
        reclaim=_reclaim(explained),
        moves=None if explained.moves is None else list(explained.moves.moves),
        eviction=_eviction(explained),
        replicas=_replicas(explained.replicas),
        line=None if explained.line is None else waiting_report(explained.line),
        events=[
            EventReport(each.reason, each.message, each.count, rfc3339(each.last)) for each in explained.details.events
        ],
    )


def _reclaim(explained: ExplainedSubject) -> ReclaimReport | None:
    gpus, leader = format_gpus(explained.explanation.pod.demand.gpus), explained.details.evictor.leader
    match explained.outlook:
        case None:
            return None
        case RoomKept(node_hold=node_hold, targets=targets):
            evicted = [EvictedReport(f"{each.namespace}/{each.name}", rfc3339(each.at)) for each in targets]
            since = rfc3339(node_hold.since)
            return ReclaimReport("kept", node_hold.node, gpus, [], evicted, since, None, leader)
        case Possible(move=move):
            evicted = [EvictedReport(f"{each.namespace}/{each.name}", None) for each in move.victims]
            teams = sorted({str(each.team) for each in move.victims})
            return ReclaimReport("possible", move.node, gpus, teams, evicted, None, None, leader)
        case Impossible(why=why):
            return ReclaimReport("impossible", None, gpus, [], [], None, why, leader)
        case _ as never:
            assert_never(never)


def _eviction(explained: ExplainedSubject) -> EvictionReport | None:
    existing = explained.subject.existing
    if existing is None or not (existing.evicted_at or is_announced(explained)):
        return None
    at, team = existing.evicted_at or existing.evict_at, existing.evict_for or None
    evicted = explained.evicted_for
    return EvictionReport(at, bool(existing.evicted_at), team, evicted.pod or None, evicted.moves_to or None)


def _replicas(found: Replicas | None) -> ReplicasReport | None:
    if found is None:
        return None
    return ReplicasReport(found.minimum, found.pods, found.ready, found.may_go)


def _update(old: OldPods | None) -> UpdateReport | None:
    return None if old is None else UpdateReport(list(old.replica_sets), format_gpus(old.gpus))


def _devices(demand: Demand) -> dict[str, str]:
    return {name: str(amount) for name, amount in demand.devices}


def _pool(step: PoolStep) -> PoolReport:
    if step.nodes is None:
        return PoolReport(step.pool.name, step.closed, None, [], [], None)
    filtered = [FilteredReport(str(cause), len(names), list(names)) for cause, names in step.nodes.filtered]
    asked = step.node_step
    node = None if asked is None else NodeAnswer(asked.node, list(asked.obstacles), asked.place)
    return PoolReport(step.pool.name, None, step.nodes.with_room, _nodes(step.nodes), filtered, node)


def _nodes(found: Candidates) -> list[NodeReport]:
    reports = []
    for name, cost in found.best:
        if cost is None:
            reports.append(NodeReport(name, None, None, None, None))
        else:
            left = cost.gpus_left + cost.cpu_left
            parts = (in_gpus(sum(cost)), in_gpus(cost.useless), in_gpus(cost.mixing), in_gpus(left))
            reports.append(NodeReport(name, *parts))
    return reports


def in_gpus(cost: int) -> float:
    """Return a cost in GPUs, to three places."""
    return round(cost / (WHOLE * WEIGHT), 3)
