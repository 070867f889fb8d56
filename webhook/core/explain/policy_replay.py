"""Policy replay: what a reload of the policy changes for the pods that exist. Pure.

`reload` plays on a world what the leader does in a cluster. Of the queued pods those start that it would release now,
beside the pods that run; running pods keep running, with the team and the tier that they have once nothing is left to
change.

Apart from that, each running pod is judged as if it were created again on the node that it has: guaranteed pods first,
of these the replicas of minimums, then older ones. One that is refused or would wait is not charged to those after it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.core.admission.assessment import assess
from webhook.core.admission.queueing import queue_for_limit, reasons_never_to_start
from webhook.core.explain.line_rows import QueueReader
from webhook.core.line.judged_pod import NO_REQUESTER
from webhook.core.model.amounts import UNLIMITED, GpuModel, PoolName, TeamName, Uid
from webhook.core.model.constraints import TIERS, Tier
from webhook.core.model.decision import Deny, NotApplicable, Queue
from webhook.core.model.node import NO_MODEL
from webhook.core.model.pod import CONTROLLER, Pod, Requester, Resident
from webhook.core.model.policy import NO_TEAM, Policy
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.starting.starts import AssumedStarts
from webhook.core.tiers.shadow_labels import ShadowLabels, adoptions, are_due
from webhook.core.tiers.tier_changes import Rank, Ranks, all_tier_changes, ranks_within
from webhook.core.world.minimums import Minimums
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World

MOST_TURNS: Final = 100
"""How often labels are looked at again after a reload: twice is enough, unless pods displace each other."""


@dataclass(frozen=True, slots=True)
class Running:
    """An existing pod: as the world holds it, and as its user created it."""

    resident: Resident
    original: Pod


class PolicyOutcome(NamedTuple):
    """The outcome of a policy for a pod: its team, its tier, the pool of its node; or why it would be refused.

    `queued` is why it would are queued, `counted` why it is only counted. No pool: it waits, or its node is in no
    pool that it may use. Of a running pod `refusals` and `queued` say what would happen if it were created again.
    """

    team: TeamName
    tier: Tier | None = None
    pool: PoolName | None = None
    refusals: tuple[Reason, ...] = ()
    queued: Reason | None = None
    counted: Reason | None = None


def requester_of(pod: Pod, user: str) -> Requester:
    """Return the requester of a pod: its user, or the controller that creates it."""
    return Requester(user) if pod.owner is None else CONTROLLER


def reload(world: World, policy: Policy, *, is_room_known: bool) -> dict[Uid, PolicyOutcome]:
    """Put a policy in force as the leader of a cluster does; return the outcomes of the queued pods.

    What is still to be done under the former policy is done first. The world is as after the reload then.
    """
    labels = ShadowLabels(world)
    labels.relabel_all()
    _settle(world, labels)
    labels.set_policy(policy)
    line = line_outcomes(world, is_room_known=is_room_known)
    _settle(world, labels)
    return line


def _settle(world: World, labels: ShadowLabels) -> None:
    """Change labels as the leader does until nothing is left to change."""
    policy, turns = world.policy, 0
    are_changed = True
    while are_changed and turns < MOST_TURNS:
        turns += 1
        if not policy.is_enforced:
            are_changed = bool(labels.update_tiers(team.name for team in policy.teams))
            continue
        teams = (*policy.teams, NO_TEAM) if are_due(world) else ()
        changes = [(pod, charge) for team in teams for pod, charge in adoptions(team, world)]
        for pod, charge in changes:
            world.set_pod(pod._replace(team_label=charge.team, tier_label=charge.tier.value))
        for change in all_tier_changes(world):
            changes.append((change.pod, change.charge))
            world.set_pod(change.pod._replace(tier_label=change.charge.tier.value))
        are_changed = bool(changes)


def running_outcome(pod: Resident, world: World, *, again: PolicyOutcome) -> PolicyOutcome:
    """Return what a running pod is in a world; `again` is the outcome if it were created again."""
    tenancy, charge = world.tenancy(pod.namespace), world.charge_of(pod.uid)
    label = TIERS.get(pod.tier_label or "")
    tier = None if label is None or tenancy.is_exempt else label if charge is None else charge.tier
    return again._replace(team=tenancy.team_name, tier=tier)


def full_limits(world: World) -> Iterator[tuple[str, str]]:
    """Yield the teams and departments under whose limits no GPU is left, and the numbers."""
    for team in world.policy.teams:
        usage = world.usage(team.name)
        held = [
            (f"team {team.name}", usage.total, team.gpus.limit),
            *((f"department {each.department.name}", each.total, each.department.gpus.limit) for each in usage.levels),
        ]
        for subject, taken, limit in held:
            if limit is not UNLIMITED and taken >= limit:
                facts = {"taken": taken, "limit": limit}
                yield subject, Statement("{taken:gpus} of {limit:GPUs} in use", facts).text


def policy_outcomes(running: Iterable[Running], world: World) -> dict[Uid, PolicyOutcome]:
    """Return the outcome of each pod if it were created again; the world has nodes and namespaces, and no pods yet."""
    outcomes: dict[Uid, PolicyOutcome] = {}
    pods = [*running]
    ranks = _ranks(pods, world)
    for each in sorted(pods, key=lambda each: _order(each.resident, ranks)):
        outcome = _outcome(each, world)
        outcomes[each.resident.uid] = outcome
        if not outcome.refusals and outcome.queued is None:
            tier = None if outcome.tier is None else outcome.tier.value
            world.set_pod(each.resident._replace(team_label=outcome.team, tier_label=tier))
    return outcomes


def line_outcomes(world: World, *, is_room_known: bool) -> dict[Uid, PolicyOutcome]:
    """Return the outcome of each queued pod: the tier with which it starts now, or why it waits or never starts.

    Unless `is_room_known` none starts. Those that start are charged to the world afterwards.
    """
    outcomes: dict[Uid, PolicyOutcome] = {}
    waiting = [*world.waiting.all()]
    if waiting and is_room_known:
        starts = AssumedStarts(world)
        for turn in starts.due(now=world.now, count=len(waiting)):
            charge = turn.admit.charge
            outcomes[turn.waiting.uid] = PolicyOutcome(charge.team, charge.tier, turn.admit.node_choice.pool)
        starts.entries.close()
    reader = QueueReader(world, is_room_known=is_room_known)
    for pod in waiting:
        if pod.uid not in outcomes:
            outcomes[pod.uid] = _outcome_in_line(pod, reader, world)
    return outcomes


def _outcome_in_line(waiting: WaitingPod, reader: QueueReader, world: World) -> PolicyOutcome:
    """Return why a queued pod waits on, or why it can never start."""
    assessed = assess(waiting.pod, NO_REQUESTER, world).of_user(waiting.user)
    early = assessed.early_decision
    if early is None:
        refusals = reasons_never_to_start(assessed, world)
    else:
        refusals = early.reasons if isinstance(early, Deny) else ()
    if refusals:
        return PolicyOutcome(waiting.team, refusals=refusals)
    row = reader.row(waiting)
    return PolicyOutcome(waiting.team, queued=row.reason)


def _ranks(running: Iterable[Running], world: World) -> Ranks:
    """Return which of these pods are part of a minimum, and which are beyond one; the world has none of them yet."""
    there, minimums = {each.resident.uid: each.resident for each in running}, Minimums()
    minimums.copy_scalers(world.minimums)
    for pod in there.values():
        minimums.set_pod(pod.uid, pod.replica, is_ready=pod.is_ready)
    return ranks_within(minimums.workloads(), minimums, there.get)


def _order(pod: Resident, ranks: Ranks) -> tuple[bool, int, int, str, str]:
    rank = ranks.get(pod.uid, Rank.OTHER)
    return pod.tier_label != Tier.GUARANTEED, rank, pod.created, pod.namespace, pod.name


def _outcome(running: Running, world: World) -> PolicyOutcome:
    pod, resident = running.original, running.resident
    node = None if resident.node is None else world.fleet.get(resident.node)
    assessed = assess(pod, requester_of(pod, resident.user or ""), world, node=node)
    if assessed.early_decision is not None:
        early, team_name = assessed.early_decision, world.tenancy(pod.namespace).team_name
        if isinstance(early, Deny):
            return PolicyOutcome(team_name, refusals=early.reasons)
        return PolicyOutcome(team_name, counted=early.reason if isinstance(early, NotApplicable) else None)
    pod, team, pools = assessed.pod, assessed.team, assessed.pools
    refusals = assessed.broken + (() if pools.refusal is None else (pools.refusal,))
    model: GpuModel | None = None
    if node is not None and team.has_model_shares:
        model = node.model
        broken = assessed.model_refusal(pod.demand, model or NO_MODEL)
        refusals += () if broken is None else (broken,)
    refusals += assessed.label_refusal(model)
    bit = 0 if node is None else world.fleet.bit(node.name)
    pools_of_node = [
        pool for pool in pools.allowed if bit & world.fleet.matching(world.pools.joined(pod.constraints, pool))
    ]
    if node is not None and pools.allowed and not pools_of_node:
        names = tuple([pool.name or "the cluster" for pool in pools.allowed])
        words = "its node {node} is in none of the pools that it may use: {pools}"
        refusals += (Reason(Code.NO_POOL_ALLOWED, words, {"node": node.name, "pools": names}),)
    if refusals:
        decision = queue_for_limit(assessed, refusals, world)
        if isinstance(decision, Queue):
            return PolicyOutcome(team.name, queued=decision.reason)
        return PolicyOutcome(team.name, refusals=refusals)
    return PolicyOutcome(team.name, assessed.tier(pod.demand, model), pools_of_node[0].name if pools_of_node else None)
