"""The meaning of a decision for the response, the log and the metrics, before it is encoded. Pure."""

from typing import NamedTuple, assert_never

from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.names import NodeName
from webhook.core.model.reason import Code, Reason, refusal_text
from webhook.kube.admission.review_response import Refusal, Status


class ReviewVerdict(NamedTuple):
    """The outcome of a request with its reason, and what goes into the answer.

    `would` is what the outcome would have been where policy is not enforced, None where it is, or nothing was judged.
    """

    outcome: Outcome
    reason: Reason
    charge: Charge | None = None
    refusal: Refusal | None = None
    nodes: tuple[NodeName, ...] = ()
    warnings: tuple[str, ...] = ()
    would: Outcome | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the request is refused, for now or for good, or would be."""
        return (self.would or self.outcome) in _REFUSED

    def not_enforced(self, warnings: tuple[str, ...] = (), *, is_judged: bool = True) -> "ReviewVerdict":
        """Return the verdict where policy is not enforced: allowed, at most with warnings."""
        outcome = Outcome.WARN if warnings else Outcome.SKIP
        return self._replace(
            outcome=outcome, refusal=None, warnings=warnings, would=self.outcome if is_judged else None
        )


_REFUSED = frozenset({Outcome.DENY, Outcome.RETRY})
_ADMIT, _SKIP = Outcome.ADMIT, Outcome.SKIP  # a look at an enum's member costs 0.1 us
_NO_WARNINGS: tuple[str, ...] = ()


def verdict_of(decision: Decision) -> ReviewVerdict:
    """Return the verdict of a decision where policy is enforced."""
    match decision:
        case Admit():
            warnings = tuple([each.text for each in decision.warnings]) if decision.warnings else _NO_WARNINGS
            return ReviewVerdict(_ADMIT, decision.reason, decision.charge, None, decision.node_choice.nodes, warnings)
        case NotApplicable():
            return ReviewVerdict(_SKIP, decision.reason, decision.charge)
        case Queue(reason=reason, warnings=warnings):
            return ReviewVerdict(Outcome.QUEUE, reason, warnings=(reason.text, *(each.text for each in warnings)))
        case Deny(reasons):
            text = refusal_text(reasons)
            reason = Reason(reasons[0].code, "{refusal}", {"refusal": text})
            status = Status.ALREADY_EXISTS if reason.code is Code.ALREADY_EXISTS else Status.FORBIDDEN
            return ReviewVerdict(Outcome.DENY, reason, refusal=Refusal(status, text, reasons))
        case Retry(reason, after_seconds):
            refusal = Refusal(Status.TOO_MANY_REQUESTS, f"{reason.text} ({reason.code})", (reason,), after_seconds)
            return ReviewVerdict(Outcome.RETRY, reason, refusal=refusal)
        case _ as never:
            assert_never(never)
