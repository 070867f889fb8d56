"""What a decision comes down to, whatever kind it is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Retry
from webhook.core.model.names import NodeName
from webhook.core.model.reason import Reason
from webhook.core.model.tier import Tier


class Outcome(StrEnum):
    """What would happen to a pod that came now."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    RETRY = "asked again"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, with why; tier and nodes where the pod is admitted."""

    outcome: Outcome
    reasons: tuple[Reason, ...]
    tier: Tier | None = None
    nodes: tuple[NodeName, ...] = ()
    warnings: tuple[Reason, ...] = ()


def verdict_of(decision: Decision) -> Verdict:
    """Read a decision."""
    match decision:
        case Admit(charge=charge, steering=steering, reason=reason, warnings=warnings):
            return Verdict(Outcome.ADMITTED, (reason,), charge.tier, steering.nodes, warnings)
        case Deny(reasons=reasons):
            return Verdict(Outcome.REFUSED, reasons)
        case Retry(reason=reason):
            return Verdict(Outcome.RETRY, (reason,))
        case NotApplicable(reason=reason, warnings=warnings):
            return Verdict(Outcome.NOT_JUDGED, (reason,), warnings=warnings)
        case _ as never:
            assert_never(never)
