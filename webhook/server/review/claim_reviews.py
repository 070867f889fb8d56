"""Reviews of ResourceClaim allocations: allowed if their pods were admitted with as many devices. Charges nothing."""

from webhook.core.admission.claim_allocation import judge_allocation
from webhook.core.model.amount import gpu_number
from webhook.core.model.decision import Decision, NotApplicable
from webhook.core.model.policy import Enforcement
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.claim_review import ClaimReview, decode_claim
from webhook.kube.admission.review_response import encode_response
from webhook.server.review.answer import Answer, object_record
from webhook.server.review.shadow import NOT_ENFORCED
from webhook.server.review.verdict import verdict_of

_GETS_NONE = NotApplicable(Reason(Code.NOT_A_CREATE, "the claim gets no devices by this"))


def answer_claim(body: bytes, world: World) -> Answer:
    """Return the answer to a review of a claim; it refuses only if policy is enforced.

    Raises ReviewError for a malformed review, and TooLargeError for a claim that is too large to be read.
    """
    review, mode = decode_claim(body), world.policy.enforce
    decision = _decide(review, world)
    verdict = verdict_of(decision)
    if mode is not Enforcement.ENFORCE:
        verdict = verdict.not_enforced(is_judged=decision is not NOT_ENFORCED)
    record = object_record(
        review,
        verdict.reason,
        world,
        name=review.name,
        outcome=verdict.outcome,
        team=world.tenancy(review.namespace).team_name,
        gpus=0 if verdict.charge is None else gpu_number(verdict.charge.gpus),
        would=verdict.would or "",
    )
    audit = {"code": str(verdict.reason.code)}
    return Answer(encode_response(review.uid, refusal=verdict.refusal, audit_annotations=audit), record)


def _decide(review: ClaimReview, world: World) -> Decision:
    if world.policy.enforce is Enforcement.OFF:
        return NOT_ENFORCED
    return _GETS_NONE if review.allocation is None else judge_allocation(review.allocation, world)
