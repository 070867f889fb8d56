"""Outcomes, the written decision, the original request.

What Fairgate says of a pod: a closed union, matched with assert_never.

Named tuples, not dataclasses: several are made for every decision, and a frozen dataclass takes 2.6 times as long.
"""

import json
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from webhook.core.model.amounts import (
    GpuModel,
    NodeName,
    PoolName,
    ResourceName,
    TeamName,
    Uid,
    Units,
    User,
    parse_amount,
)
from webhook.core.model.constraints import (
    HELD,
    NO_CONSTRAINTS,
    Constraints,
    DomainPlace,
    NodeTerm,
    Operator,
    Requirement,
    Tier,
    Toleration,
)
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Admitted, Handling, Pod, PriorityTriple
from webhook.core.model.policy import Mode, Policy
from webhook.core.model.reasons import NO_ROOM, Code, Reason


class Outcome(StrEnum):
    """What came of a request, in one word; logs and metrics use these values."""

    ADMIT = "admit"
    WARN = "warn"
    QUEUE = "queue"
    DENY = "deny"
    RETRY = "retry"
    SKIP = "skip"


class NodeChoice(NamedTuple):
    """The nodes for a pod, in the form that is written into its spec.

    `node_selector` and `tolerations` are added. `pool_terms`: the pod must meet one of these besides its own terms
    (empty: no such condition; several: each pool is allowed while no node has room). `nodes`, best first, are the
    choice, written as `mode` says: REQUIRE one named node, AUTO the listed nodes plus a preference by rank, PREFER
    the preference only, OFF nothing. `expected`, with OFF, is the best node: the pod is bound to none, and takes its
    room there until it has one. `domain` is where all members of the pod's gang are.
    """

    mode: Mode
    nodes: tuple[NodeName, ...] = ()
    pool: PoolName | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    pool_terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    domain: DomainPlace | None = None
    expected: tuple[NodeName, ...] = ()


class Charge(NamedTuple):
    """What a pod adds to the usage of its team."""

    team: TeamName
    tier: Tier
    gpus: Units
    model: GpuModel | None = None  # None where the team has no shares per model
    user: User | None = None  # None where the user is not known


class Admit(NamedTuple):
    """The pod is admitted, with this charge and this node choice."""

    charge: Charge
    demand: Demand
    node_choice: NodeChoice
    reason: Reason
    policy_hash: str
    priority: PriorityTriple | None = None
    warnings: tuple[Reason, ...] = ()
    requested_tier: Tier | None = None  # what the user's own label asked for, before it was replaced by the outcome


class Queue(NamedTuple):
    """The pod is created with Fairgate's scheduling gate and is queued, uncharged; the reason says for what."""

    team: TeamName
    demand: Demand
    reason: Reason
    policy_hash: str
    user: User | None = None
    requested_tier: Tier | None = None
    warnings: tuple[Reason, ...] = ()


class Deny(NamedTuple):
    """The pod is refused, for every one of these reasons."""

    reasons: tuple[Reason, ...]


class Retry(NamedTuple):
    """Not decided: the state changed meanwhile. Clients retry by themselves after so many seconds."""

    reason: Reason
    after_seconds: int = 1


class NotApplicable(NamedTuple):
    """Fairgate does not decide on this pod; `charge` is what it counts nevertheless, None if it takes no GPU.

    `node_choice` is set for a pod without GPUs that a pool selects: its spec is bound to the pool, nothing else.
    """

    reason: Reason
    charge: Charge | None = None
    warnings: tuple[Reason, ...] = ()
    node_choice: NodeChoice | None = None


Decision = Admit | Queue | Deny | Retry | NotApplicable


def lacks_room(decision: Decision) -> bool:
    """Whether a pod is refused, admitted or put in the queue since no node has room for it now."""
    match decision:
        case Deny(reasons=reasons) | Admit(warnings=reasons):
            return any(reason.code in NO_ROOM for reason in reasons)
        case Queue(reason=reason):
            return reason.code is Code.WAITS_FOR_ROOM
        case _:
            return False


# The decision annotation as read by the validating step; webhook/kube/admission/pod_patch.py writes it.


class Own(NamedTuple):
    """Which parts of its pool's conditions a pod had before the decision: those are its user's."""

    has_selector: bool = False
    has_tolerations: bool = False
    has_affinity: bool = False

    @classmethod
    def of(cls, text: str) -> "Own":
        """Return what a text says."""
        return cls("s" in text, "t" in text, "a" in text)

    @property
    def text(self) -> str:
        """The text that says this."""
        return "".join(letter for letter, is_own in zip("sta", self, strict=True) if is_own)


class DecisionAnnotation(NamedTuple):
    """The decision as written on the pod: compact JSON, amounts as strings.

    `listed`: how many nodes the pod's node affinity names, which the annotation does not repeat; 0 where it does.
    `domain` is where all pods of its gang are, "" where they need not be in one, and `why` says why. `own` is what of
    its pool's conditions is the user's.
    """

    demand: tuple[tuple[ResourceName, int], ...]
    gpus: str
    mode: str
    nodes: tuple[NodeName, ...]
    pool: PoolName | None
    model: GpuModel | None
    user: User | None
    asked: str | None
    code: str
    policy: str
    at: str
    claims: tuple[Uid, ...] = ()
    listed: int = 0
    domain: str = ""
    why: str = ""
    own: Own = Own()

    @property
    def admitted(self) -> Admitted | None:
        """Return the charge that a pod with claims was admitted with; None where the amount is not valid."""
        try:
            return Admitted(parse_amount(self.gpus), self.policy, self.claims)
        except ValueError:
            return None


_OF: Final = ',"of":"'


def subject_of(text: str) -> str:
    """Return the pod for which a decision was written, by namespace and name; "" where that is not said."""
    return text.partition(_OF)[2].partition('"')[0]


@lru_cache(maxsize=128)  # a pod may be judged again, and the annotation of a charged one is read once more
def read(text: str, constraints: Constraints = NO_CONSTRAINTS) -> DecisionAnnotation | None:
    """Parse the annotation; None where it is not a decision of Fairgate. The constraints are the pod's own."""
    head, of, rest = text.partition(_OF)
    found = _parse(head + rest.partition('"')[2] if of else text)
    if found is None or not found.listed:
        return found
    return found._replace(nodes=tuple(map(NodeName, constraints.named_nodes)))


@lru_cache(maxsize=128)  # pods of one template, created in one second, differ in their nodes only
def _parse(text: str) -> DecisionAnnotation | None:
    """Parse the annotation without the nodes that it does not repeat, and without the pod's name."""
    try:
        data = json.loads(text)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode()  # half a surrogate can be parsed, but not encoded again
        listed = int(data.get("listed", 0))
        return DecisionAnnotation(
            demand=tuple(sorted((ResourceName(str(name)), int(count)) for name, count in data["demand"].items())),
            gpus=str(data["gpus"]),
            mode=str(data["mode"]),
            nodes=() if listed else tuple([NodeName(str(name)) for name in data["nodes"]]),
            pool=PoolName(str(data["pool"])) if "pool" in data else None,
            model=GpuModel(str(data["model"])) if "model" in data else None,
            user=User(str(data["user"])) if "user" in data else None,
            asked=str(data["asked"]) if "asked" in data else None,
            code=str(data["code"]),
            policy=str(data["policy"]),
            at=str(data["at"]),
            claims=tuple(Uid(str(uid)) for uid in data.get("claims", ())),
            listed=listed,
            domain=str(data.get("domain", "")),
            why=str(data.get("why", "")),
            own=Own.of(str(data.get("own", ""))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


# What a user requested, read back from a pod that exists: without what Fairgate and kube-scheduler wrote on it.
#
# For commands that show the outcome if the pod were created now. The decision on the pod has what was written; a
# condition that user and pool both name is the user's where the decision says so, else it is taken for the pool's.


def as_asked(pod: Pod, policy: Policy) -> Pod:
    """Take off a pod what the decision on it added, its node, and the evictor's tolerations of held nodes.

    Without a decision only the node and those tolerations are known. A toleration of held nodes is never the user's:
    creation refuses it, and on pods that exist only Fairgate may add it.
    """
    annotation = None if pod.decision_annotation is None else read(pod.decision_annotation, pod.constraints)
    pod = pod._replace(constraints=without_holds(pod.constraints))
    if pod.handling is Handling.NODE_NAME:
        pod = pod._replace(node_name=None, handling=Handling.MANAGED)
    if annotation is None:
        return pod if pod.team_label is None else pod._replace(team_label=None, tier_label=None)
    return pod._replace(
        decision_annotation=None,
        team_label=None,
        tier_label=annotation.asked,
        constraints=_without_node_choice(pod.constraints, annotation, policy),
    )


def without_holds(constraints: Constraints) -> Constraints:
    """Return constraints without tolerations of held nodes."""
    kept = tuple(each for each in constraints.tolerations if each.key != HELD)
    return constraints if kept == constraints.tolerations else replace(constraints, tolerations=kept)


def _without_node_choice(constraints: Constraints, annotation: DecisionAnnotation, policy: Policy) -> Constraints:
    pool = next((pool for pool in policy.pools if pool.name == annotation.pool), None)
    selector = frozenset() if pool is None or annotation.own.has_selector else frozenset(pool.node_selector)
    affinity = () if pool is None or annotation.own.has_affinity else pool.affinity
    terms = None
    if constraints.terms is not None:
        left = (_without(term, annotation, affinity) for term in constraints.terms)
        terms = tuple(dict.fromkeys(left))
    return Constraints(
        tuple(pair for pair in constraints.node_selector if pair not in selector),
        None if terms == (NodeTerm(),) else terms,
        constraints.tolerations,
        constraints.volumes,
    )


def _without(term: NodeTerm, annotation: DecisionAnnotation, affinity: tuple[Requirement, ...]) -> NodeTerm:
    chosen = {Requirement("metadata.name", Operator.IN, (node,)) for node in annotation.nodes}
    model = annotation.model
    return NodeTerm(
        tuple(
            each
            for each in term.labels
            if each not in affinity and not (model and each.operator is Operator.IN and each.values == (model,))
        ),
        tuple(each for each in term.fields if each not in chosen),
    )
