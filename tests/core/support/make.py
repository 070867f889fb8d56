"""Core objects with defaults, so that a test states only what matters to it."""

import json
from itertools import count

from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    UNLIMITED,
    Limit,
    Namespace,
    NodeName,
    PoolName,
    ResourceName,
    TeamName,
    Uid,
    format_gpus,
)
from webhook.core.model.constraints import Constraints, NodeTerm, Operator, Requirement
from webhook.core.model.decision import Admit, Charge
from webhook.core.model.demand import Demand, demand_of
from webhook.core.model.node import Node
from webhook.core.model.pod import Owner, Pod, Requester, Resident
from webhook.core.model.policy import BUILT_IN_RESOURCES, PlacementRules, Policy, Pool, Share, Team
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World

GPU = ResourceName("nvidia.com/gpu")
GIB = 1 << 30
ALICE = Requester("alice@example.com")
JOB_CONTROLLER = Requester("system:serviceaccount:kube-system:job-controller")
_uids = count()


def gpus(amount: float) -> int:
    return round(amount * ONE_GPU)


def limit(amount: float | None) -> Limit:
    return UNLIMITED if amount is None else gpus(amount)


def demand(count_: int = 1, *, cpu: int = 6000, memory: int = 48 * GIB, **more: int) -> Demand:
    requests = {CPU: cpu, MEMORY: memory, PODS: 1, GPU: count_, **{ResourceName(k): v for k, v in more.items()}}
    return demand_of(requests, BUILT_IN_RESOURCES)


def node(
    name: str = "n0", *, gpus: int = 10, cpu: int = 64_000, memory: int = 512 * GIB, pods: int = 110, **more
) -> Node:
    allocatable = {CPU: cpu, MEMORY: memory, PODS: pods} | ({GPU: gpus} if gpus else {})
    return Node(NodeName(name), allocatable, **more)


def pod(count_: int = 1, *, namespace: str = "team-a", **more) -> Pod:
    return Pod(Namespace(namespace), more.pop("demand", None) or demand(count_), **more)


def resident(
    count_: int = 1, *, uid: str = "", namespace: str = "team-a", tier: str | None = "guaranteed", **more
) -> Resident:
    uid = uid or f"uid-{next(_uids)}"
    return Resident(
        uid=Uid(uid),
        namespace=Namespace(namespace),
        name=more.pop("name", uid),
        demand=more.pop("demand", None) or demand(count_),
        node=more.pop("node", None),
        owner=more.pop("owner", None),
        team_label=None if tier is None else namespace,
        tier_label=tier,
        **more,
    )


def team(name: str = "team-a", *, guaranteed: float = 20, limit_: float | None = 40, **more) -> Team:
    return Team(
        TeamName(name), namespaces=more.pop("namespaces", (name,)), gpus=Share(gpus(guaranteed), limit(limit_)), **more
    )


def policy(*teams: Team, keep_whole: int = 0, **more) -> Policy:
    rules = more.pop("placement", PlacementRules(keep_whole=keep_whole))
    return Policy(teams=teams or (team(), team("team-b")), placement=rules, hash=more.pop("hash", "p1"), **more)


def pool(name: str, **more) -> Pool:
    return Pool(PoolName(name), **more)


def world(
    policy_: Policy | None = None, nodes: list[Node] | None = None, residents: list[Resident] | None = None
) -> World:
    made = World(policy_ or policy())
    for each in nodes if nodes is not None else [node(f"n{i}") for i in range(4)]:
        made.set_node(each)
    for each in residents or []:
        made.set_pod(each)
    return made


def requirement(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, Operator(operator), values)


def mutated(pod_: Pod, admitted: Admit, *, uid: str = "u1", at: str = "2026-01-01T00:00:00Z") -> Pod:
    """The pod as the validating step sees it: with the decision applied."""
    node_choice = admitted.node_choice
    names = tuple(Requirement("metadata.name", Operator.IN, (name,)) for name in node_choice.nodes)
    user_terms = pod_.constraints.terms if pod_.constraints.terms is not None else (NodeTerm(),)
    pool_terms = node_choice.pool_terms or ((),)
    terms = tuple(
        NodeTerm(term.labels + extra, (*term.fields, name))
        for term in user_terms
        for extra in pool_terms
        for name in names
    )
    constraints = Constraints(
        tuple(dict.fromkeys(pod_.constraints.node_selector + node_choice.node_selector)),
        terms if names and node_choice.mode in {"auto", "require"} else pod_.constraints.terms,
        tuple(dict.fromkeys(pod_.constraints.tolerations + node_choice.tolerations)),
    )
    return pod_._replace(
        uid=Uid(uid),
        name=pod_.name or uid,
        constraints=constraints,
        team_label=admitted.charge.team,
        tier_label=admitted.charge.tier,
        decision_annotation=decision_annotation_of(admitted, at=at),
    )


def decision_annotation_of(admitted: Admit, *, at: str) -> str:
    """The decision annotation of an admitted pod."""
    domain = admitted.node_choice.domain
    fields = {
        "demand": {name: str(count) for name, count in admitted.demand.devices},
        "gpus": format_gpus(admitted.charge.gpus),
        "mode": admitted.node_choice.mode,
        "nodes": admitted.node_choice.nodes,
        "pool": admitted.node_choice.pool,
        "model": admitted.charge.model,
        "user": admitted.charge.user,
        "asked": admitted.requested_tier,
        "code": admitted.reason.code,
        "policy": admitted.policy_hash,
        "at": at,
        "domain": None if domain is None else domain.name or None,
        "why": None if domain is None else domain.why or None,
    }
    return json.dumps({key: value for key, value in fields.items() if value is not None})


def flight(pod_: Pod, charge: Charge, node_: NodeName | None) -> InFlightCharge:
    """The charge of an admitted pod, as the webhook makes it."""
    made = Resident(
        pod_.uid,
        pod_.namespace,
        pod_.name,
        pod_.demand,
        None,
        pod_.owner,
        pod_.team_label,
        pod_.tier_label,
        charge.user,
    )
    return InFlightCharge(made, charge, node_)


def commit(world_: World, pod_: Pod, charge: Charge, node_: NodeName | None) -> None:
    """Add an admitted pod that exists from now on."""
    world_.add_pod(flight(pod_, charge, node_))


JOB = Owner("Job", "train")
