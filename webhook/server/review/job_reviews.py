"""Reviews of Jobs: a rule is added so that evictions do not count as failures. Nothing is refused."""

from webhook.core.model.decision import Outcome
from webhook.core.model.policy import Enforcement, JobEvictions
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.job_review import FailurePolicyChange, JobReview, decode_job, failure_policy_change
from webhook.kube.admission.review import Review, TooLargeError
from webhook.kube.admission.review_response import encode_response
from webhook.server.review.answer import Answer, object_record
from webhook.server.review.shadow import NOT_ENFORCED

_KEPT = Reason(Code.NOT_A_CREATE, "its podFailurePolicy stays as it is")
_EXEMPT = Reason(Code.EXEMPT, "its namespace is exempt")
_IGNORED = Reason(Code.EVICTIONS_IGNORED, "evictions do not count as its failures")
_TOO_LARGE = Reason(Code.TOO_LARGE, "too large to be read: its podFailurePolicy stays as it is")


def answer_job(body: bytes, world: World) -> Answer:
    """Return the answer to a review of a Job. Raises ReviewError for a malformed review."""
    review: JobReview | Review
    try:
        review = job_review = decode_job(body)
        reason, change = _judge(job_review, world)
    except TooLargeError as error:
        review, reason, change = error.review, _TOO_LARGE, FailurePolicyChange()
    warnings = (f"Job {review.name}: {change.warning}",) if change.warning else ()
    record = object_record(
        review,
        reason,
        world,
        name=review.name,
        outcome=Outcome.WARN if warnings else Outcome.ADMIT if change.patch else Outcome.SKIP,
        team=world.tenancy(review.namespace).team_name,
    )
    audit = {"code": str(reason.code)}
    return Answer(encode_response(review.uid, patch=change.patch, warnings=warnings, audit_annotations=audit), record)


def _judge(review: JobReview, world: World) -> tuple[Reason, FailurePolicyChange]:
    policy = world.policy
    if policy.enforce is not Enforcement.ENFORCE:
        return NOT_ENFORCED.reason, FailurePolicyChange()
    if world.tenancy(review.namespace).is_exempt:
        return _EXEMPT, FailurePolicyChange()
    if policy.workloads.job_evictions is JobEvictions.COUNT:
        return _KEPT, FailurePolicyChange()
    change = failure_policy_change(review)
    if change.patch:
        return _IGNORED, change
    return (Reason(Code.EVICTIONS_COUNT, change.warning) if change.warning else _KEPT), change
