"""Reasons: stable codes with numbers and advice. cli/codes.json has cause and remedy of each."""

from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.model.statement import NO_FACTS, Facts, Statement, render


class Code(StrEnum):
    """The stable names of all outcomes, warnings included."""

    # limits: text starts with "exceeded quota:", on which Argo, Flyte and others retry
    TEAM_LIMIT_EXCEEDED = "TeamLimitExceeded"
    DEPARTMENT_LIMIT_EXCEEDED = "DepartmentLimitExceeded"
    MODEL_LIMIT_EXCEEDED = "ModelLimitExceeded"
    POD_LIMIT_EXCEEDED = "PodLimitExceeded"
    USER_LIMIT_EXCEEDED = "UserLimitExceeded"
    GUARANTEED_SHARE_USED = "GuaranteedShareUsed"
    QUEUE_FULL = "QueueFull"
    TOO_MANY_FORCE_DELETED = "TooManyForceDeleted"
    # other refusals
    UNKNOWN_TEAM = "UnknownTeam"
    INVALID_REQUEST = "InvalidRequest"
    TOO_LARGE = "TooLarge"
    UNKNOWN_GPU_RESOURCE = "UnknownGpuResource"
    NO_POOL_ALLOWED = "NoPoolAllowed"
    UNKNOWN_POOL = "UnknownPool"
    POOL_FULL = "PoolFull"
    POOL_UNFIT = "PoolUnfit"
    NEVER_FITS = "NeverFits"  # a warning where it is not certain
    PROTECTED_KEY_CHANGED = "ProtectedKeyChanged"
    HELD_ROOM = "HeldRoom"
    TENANCY_CHANGED = "TenancyChanged"
    UNCOUNTED_DEVICE = "UncountedDevice"
    GRACE_PERIOD_TOO_LONG = "GracePeriodTooLong"
    ALREADY_EXISTS = "AlreadyExists"
    RESOURCE_QUOTA_EXCEEDED = "ResourceQuotaExceeded"
    MUTATION_ALTERED = "MutationAltered"
    CLAIM_CHANGED = "ClaimChanged"
    # retried by the API server's clients, invisible to the user
    MUTATION_MISSING = "MutationMissing"
    RACE_LOST = "RaceLost"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    LEDGER_FULL = "LedgerFull"
    PRIORITY_CLASS_UNKNOWN = "PriorityClassUnknown"
    CLAIM_UNKNOWN = "ClaimUnknown"
    # admitted
    WITHIN_SHARE = "WithinShare"
    BORROWS = "Borrows"
    BORROWS_BY_CHOICE = "BorrowsByChoice"
    BACKFILLS = "Backfills"
    # waiting in line
    WAITS_FOR_LIMIT = "WaitsForLimit"
    WAITS_FOR_BORROWERS = "WaitsForBorrowers"
    WAITS_FOR_ROOM = "WaitsForRoom"
    WAITS_IN_LINE = "WaitsInLine"
    WAITS_FOR_GATE = "WaitsForGate"
    WAITS_FOR_GANG = "WaitsForGang"
    # not decided by Fairgate
    NO_GPU = "NoGpu"
    EXEMPT = "Exempt"
    COUNTED_ONLY = "CountedOnly"
    CLAIM_COVERED = "ClaimCovered"
    SENT_TO_POOL = "SentToPool"
    NOT_A_CREATE = "NotACreate"
    NOT_ENFORCED = "NotEnforced"
    ALREADY_DECIDED = "AlreadyDecided"
    # warnings
    NO_ROOM_NOW = "NoRoomNow"
    UNKNOWN_USER = "UnknownUser"
    TOPOLOGY_IGNORED = "TopologyIgnored"
    GANG_IGNORED = "GangIgnored"
    RUN_TIME_IGNORED = "RunTimeIgnored"
    MINIMUM_IGNORED = "MinimumIgnored"
    # of Jobs, and of workloads that fail by evictions or by waiting
    GANG_MARKED = "GangMarked"
    RUN_TIME_COPIED = "RunTimeCopied"
    MINIMUM_COPIED = "MinimumCopied"
    EVICTIONS_IGNORED = "EvictionsIgnored"
    EVICTIONS_COUNT = "EvictionsCount"
    DEADLINE_IN_LINE = "DeadlineInLine"
    # of whole workloads
    WORKLOAD_FITS = "WorkloadFits"
    OPEN_COUNT = "OpenCount"
    # of manifests: what a review cannot judge
    UNREADABLE = "Unreadable"
    UNKNOWN_KIND = "UnknownKind"


# families of codes: a new code is added here as well where it is of one
LIMITS: Final = frozenset(
    {
        Code.TEAM_LIMIT_EXCEEDED,
        Code.DEPARTMENT_LIMIT_EXCEEDED,
        Code.MODEL_LIMIT_EXCEEDED,
        Code.USER_LIMIT_EXCEEDED,
        Code.GUARANTEED_SHARE_USED,
    }
)
"""The codes of limits that other pods use up."""
LIMIT_CODES: Final = LIMITS | {Code.POD_LIMIT_EXCEEDED, Code.QUEUE_FULL, Code.TOO_MANY_FORCE_DELETED}
"""The codes of all limits: their texts have the prefix on which controllers retry."""
NO_ROOM: Final = frozenset({Code.NO_ROOM_NOW, Code.POOL_FULL})
"""The codes of nodes that other pods use up."""
LEVELS: Final = frozenset({Code.TEAM_LIMIT_EXCEEDED, Code.DEPARTMENT_LIMIT_EXCEEDED})
"""The codes of limits under which reclaim makes room."""
WAITING: Final = frozenset(
    {
        Code.WAITS_FOR_LIMIT,
        Code.WAITS_FOR_BORROWERS,
        Code.WAITS_FOR_ROOM,
        Code.WAITS_IN_LINE,
        Code.WAITS_FOR_GATE,
        Code.WAITS_FOR_GANG,
    }
)
"""The codes of pods that wait in line."""


class Reason(NamedTuple):
    """One cause in three parts: what was requested, what allows how much and what is used, what to do next.

    A code with a statement of it (webhook/core/model/statement.py): constant words, and the facts in their places.
    """

    code: Code
    words: str
    facts: Facts = NO_FACTS

    def __hash__(self) -> int:
        return hash((self.code, self.words))

    @property
    def statement(self) -> Statement:
        """What it says."""
        return Statement(self.words, self.facts)

    @property
    def text(self) -> str:
        """What it says, for people."""
        return render(self.words, self.facts)


def refusal_text(reasons: tuple[Reason, ...]) -> str:
    """Join the reasons of a refusal; limits come first, after the prefix that retrying controllers match."""
    limits = [r for r in reasons if r.code in LIMIT_CODES]
    others = [r for r in reasons if r.code not in LIMIT_CODES]
    text = "; ".join(f"{r.text} ({r.code})" for r in limits + others)
    return f"exceeded quota: {text}" if limits else text


def waits_for(code: Code, cause: Statement, *, place: int = 0) -> Reason:
    """Return the reason of a pod that waits in line for something; `place` is 0 where it is left out."""
    if not place:
        return Reason(code, "waits: {cause}", {"cause": cause})
    return Reason(code, "waits: {cause}; {place:place}", {"cause": cause, "place": place})


def cause_of(reason: Reason) -> Statement:
    """Return for what a pod waits, without its place in line; of any other reason all that it says."""
    cause = reason.facts.get("cause")
    return cause if isinstance(cause, Statement) else reason.statement
