"""Claims that get their devices: let through if their pods were let in with so many. Nothing is charged."""

from typing import assert_never

from webhook.core.admission.claim_allocation import judge_allocation
from webhook.core.model.amount import gpu_number
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Retry
from webhook.core.model.policy import Enforcement
from webhook.core.model.reason import Code, Reason, refusal_text
from webhook.core.world.world import World
from webhook.kube.admission.claim_review import ClaimReview, decode_claim
from webhook.kube.admission.review_response import Refusal, Status, encode_response
from webhook.server.http.answer import Answer, object_record
from webhook.server.review.shadow import NOT_ENFORCED

_GETS_NONE = NotApplicable(Reason(Code.NOT_A_CREATE, "the claim gets no devices by this"))


def answer_claim(body: bytes, world: World) -> Answer:
    """Answer a review of a claim; refuses only what is enforced.

    Raises ReviewError for what is no such review, and TooLargeError for a claim that is too large to be read.
    """
    review, mode = decode_claim(body), world.policy.enforce
    decision = _decide(review, world)
    outcome, reason, refusal = _told(decision)
    would = ""
    if mode is not Enforcement.ENFORCE:
        outcome, would, refusal = "skip", "" if decision is NOT_ENFORCED else outcome, None
    charge = decision.charge if isinstance(decision, NotApplicable) else None
    record = object_record(
        review,
        reason,
        world,
        name=review.name,
        outcome=outcome,
        team=world.tenancy(review.namespace).team_name,
        gpus=0 if charge is None else gpu_number(charge.gpus),
        would=would,
    )
    return Answer(encode_response(review.uid, refusal=refusal, audit_annotations={"code": reason.code}), record)


def _decide(review: ClaimReview, world: World) -> Decision:
    if world.policy.enforce is Enforcement.OFF:
        return NOT_ENFORCED
    return _GETS_NONE if review.allocation is None else judge_allocation(review.allocation, world)


def _told(decision: Decision) -> tuple[str, Reason, Refusal | None]:
    match decision:
        case Deny(reasons):
            text = refusal_text(reasons)
            return "deny", Reason(reasons[0].code, text), Refusal(Status.FORBIDDEN, text, reasons)
        case Retry(reason, after_seconds):
            text = f"{reason.text} ({reason.code})"
            return "retry", reason, Refusal(Status.TOO_MANY_REQUESTS, text, (reason,), after_seconds)
        case Admit(reason=reason) | NotApplicable(reason=reason):
            return "skip", reason, None
        case _ as never:
            assert_never(never)
