"""What Fairgate says of a pod: a closed union, matched with assert_never.

Named tuples, not dataclasses: several are made for every decision, and a frozen dataclass takes 2.6 times as long.
"""

from enum import StrEnum
from typing import NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.domain_request import DomainPlace
from webhook.core.model.names import GpuModel, NodeName, PoolName, TeamName, User
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode
from webhook.core.model.reason import NO_ROOM, Code, Reason
from webhook.core.model.selector import Requirement, Toleration
from webhook.core.model.tier import Tier


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
    """The pod is created with Fairgate's scheduling gate and waits in line, uncharged; the reason says for what."""

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
    """Whether a pod is refused, admitted or put in line since no node has room for it now."""
    match decision:
        case Deny(reasons=reasons) | Admit(warnings=reasons):
            return any(reason.code in NO_ROOM for reason in reasons)
        case Queue(reason=reason):
            return reason.code is Code.WAITS_FOR_ROOM
        case _:
            return False
