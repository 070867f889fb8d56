"""What Fairgate says of a pod: a closed union, matched with assert_never.

Named tuples, not dataclasses: several are made for every decision, and a frozen dataclass takes 2.6 times as long.
"""

from enum import StrEnum
from typing import NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.demand import Demand
from webhook.core.model.names import GpuModel, NodeName, PoolName, TeamName, User
from webhook.core.model.pod import PriorityTriple
from webhook.core.model.policy import Mode
from webhook.core.model.reason import Reason
from webhook.core.model.selector import Requirement, Toleration
from webhook.core.model.tier import Tier


class Outcome(StrEnum):
    """What came of a request, in one word; logs and metrics use these values."""

    ADMIT = "admit"
    WARN = "warn"
    DENY = "deny"
    RETRY = "retry"
    SKIP = "skip"


class Steering(NamedTuple):
    """Where to send a pod, ready to be written into its spec.

    `node_selector` and `tolerations` are added. `pool_terms`: the pod must meet one of these besides its own terms
    (none: no such condition; several: pools that would all do while no node has room). `nodes`, best first, are the
    choice, written as `mode` says: REQUIRE one named node, AUTO the listed nodes plus a preference by rank, PREFER
    the preference only, OFF nothing.
    """

    mode: Mode
    nodes: tuple[NodeName, ...] = ()
    pool: PoolName | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    pool_terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class Charge(NamedTuple):
    """What a pod puts on its team's ledger."""

    team: TeamName
    tier: Tier
    gpus: Units
    model: GpuModel | None = None  # None where the team has no shares per model
    user: User | None = None  # None where nobody can be named


class Admit(NamedTuple):
    """The pod may enter: on these terms, sent there."""

    charge: Charge
    demand: Demand
    steering: Steering
    reason: Reason
    policy_hash: str
    priority: PriorityTriple | None = None
    warnings: tuple[Reason, ...] = ()
    requested_tier: Tier | None = None  # what the user's own label asked for, before it was replaced by the outcome


class Deny(NamedTuple):
    """The pod may not enter, for every one of these reasons."""

    reasons: tuple[Reason, ...]


class Retry(NamedTuple):
    """Not decided: something changed meanwhile. Clients ask again by themselves after so many seconds."""

    reason: Reason
    after_seconds: int = 1


class NotApplicable(NamedTuple):
    """Not ours to decide; `charge` is what it counts all the same, None where it takes no GPU.

    `steering` is there for a pod without GPUs that belongs to a pool: it is sent there, and nothing else is said of it.
    """

    reason: Reason
    charge: Charge | None = None
    warnings: tuple[Reason, ...] = ()
    steering: Steering | None = None


Decision = Admit | Deny | Retry | NotApplicable
