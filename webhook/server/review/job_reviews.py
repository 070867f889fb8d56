"""Reviews of Jobs: a rule is added so that evictions do not count as failures.

A created Job that then has such a rule is also judged as a workload, and marked as a gang if its annotation asks for
that: one call of the API server instead of up to three.
"""

from typing import Literal, NamedTuple

from webhook.core.model.decision import Outcome
from webhook.core.model.policy import Enforcement
from webhook.core.model.reason import Code, Reason
from webhook.core.model.workload_rules import JobEvictions
from webhook.core.world.world import World
from webhook.kube.admission.job_review import (
    FailurePolicyChange,
    JobReview,
    decides_evictions,
    decode_job,
    failure_policy_change,
)
from webhook.kube.admission.review import Operation, Review, TooLargeError
from webhook.kube.admission.review_response import Refusal, encode_response
from webhook.kube.objects.json_patch import Operation as Change
from webhook.server.review.answer import Answer, object_record
from webhook.server.review.gang_reviews import gang_change
from webhook.server.review.shadow import NOT_ENFORCED
from webhook.server.review.workload_reviews import workload_verdict

_KEPT = Reason(Code.NOT_A_CREATE, "its podFailurePolicy stays as it is")
_EXEMPT = Reason(Code.EXEMPT, "its namespace is exempt")
_IGNORED = Reason(Code.EVICTIONS_IGNORED, "evictions do not count as its failures")
_TOO_LARGE = Reason(Code.TOO_LARGE, "too large to be read: its podFailurePolicy stays as it is")


class _Verdict(NamedTuple):
    """The decision; `would` as in a record."""

    outcome: Outcome
    reason: Reason
    patch: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: Refusal | None = None
    would: Outcome | Literal[""] = ""


def answer_job(body: bytes, world: World) -> Answer:
    """Return the answer to a review of a Job. Raises ReviewError for a malformed review."""
    review: JobReview | Review
    try:
        review = job_review = decode_job(body)
        verdict = _judged(job_review, world)
    except TooLargeError as error:
        review, verdict = error.review, _Verdict(Outcome.SKIP, _TOO_LARGE)
    record = object_record(
        review,
        verdict.reason,
        world,
        name=f"Job/{review.name}",
        outcome=verdict.outcome,
        team=world.tenancy(review.namespace).team_name,
        would=verdict.would,
    )
    response = encode_response(
        review.uid,
        refusal=verdict.refusal,
        patch=verdict.patch,
        warnings=verdict.warnings,
        audit_annotations={"code": str(verdict.reason.code)},
    )
    return Answer(response, record)


def _judged(review: JobReview, world: World) -> _Verdict:
    reason, change = _rule(review, world)
    warnings = (f"Job {review.name}: {change.warning}",) if change.warning else ()
    outcome = Outcome.WARN if warnings else Outcome.ADMIT if change.patch else Outcome.SKIP
    verdict = _Verdict(outcome, reason, change.patch, warnings)
    job = review.job
    if review.operation is not Operation.CREATE or job is None or job.is_made_by_controller:
        return verdict
    return _with_workload(verdict, review, world) if decides_evictions(job, change) else verdict


def _with_workload(verdict: _Verdict, review: JobReview, world: World) -> _Verdict:
    """Return the verdict on a Job also as a workload: this is the only call for it.

    The reason is that of the workload if its owner should read it, or if the Job stays as it is.
    """
    gang_reason, marks = gang_change(review, world)
    if marks:
        verdict = verdict._replace(patch=(*verdict.patch, *marks))
        if not verdict.warnings:
            verdict = verdict._replace(outcome=Outcome.ADMIT, reason=gang_reason)
    whole = workload_verdict(review, world)
    if whole.refusal is not None:
        return _Verdict(whole.outcome, whole.reason, refusal=whole.refusal)
    if whole.warnings or whole.would or verdict.outcome is Outcome.SKIP:
        verdict = verdict._replace(outcome=whole.outcome, reason=whole.reason, would=whole.would)
    # what has changed in the Job is never left out, however many warnings there are
    return verdict._replace(warnings=(*verdict.warnings, *whole.warnings))


def _rule(review: JobReview, world: World) -> tuple[Reason, FailurePolicyChange]:
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
    if not change.warning:
        return _KEPT, change
    return Reason(Code.EVICTIONS_COUNT, "{warning}", {"warning": change.warning}), change
