"""The outcome of a decision with its reasons, and the names of outcomes in explanations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.names import NodeName
from webhook.core.model.reason import Reason
from webhook.core.model.tier import Tier

Word = Literal["admitted", "queued", "refused", "asked again", "not judged"]
"""The name of the outcome of a pod that would be created now."""

WORDS: Final[Mapping[Outcome, Word]] = {
    Outcome.ADMIT: "admitted",
    Outcome.QUEUE: "queued",
    Outcome.DENY: "refused",
    Outcome.RETRY: "asked again",
    Outcome.SKIP: "not judged",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with its reasons; tier and nodes where the pod is admitted."""

    outcome: Outcome
    reasons: tuple[Reason, ...]
    tier: Tier | None = None
    nodes: tuple[NodeName, ...] = ()
    warnings: tuple[Reason, ...] = ()

    @property
    def word(self) -> Word:
        """The name of the outcome."""
        return WORDS[self.outcome]


def verdict_of(decision: Decision) -> Verdict:
    """Return the verdict of a decision."""
    match decision:
        case Admit(charge=charge, node_choice=node_choice, reason=reason, warnings=warnings):
            return Verdict(Outcome.ADMIT, (reason,), charge.tier, node_choice.nodes, warnings)
        case Queue(reason=reason, warnings=warnings):
            return Verdict(Outcome.QUEUE, (reason,), warnings=warnings)
        case Deny(reasons=reasons):
            return Verdict(Outcome.DENY, reasons)
        case Retry(reason=reason):
            return Verdict(Outcome.RETRY, (reason,))
        case NotApplicable(reason=reason, warnings=warnings):
            return Verdict(Outcome.SKIP, (reason,), warnings=warnings)
        case _ as never:
            assert_never(never)
