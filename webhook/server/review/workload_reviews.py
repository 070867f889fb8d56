"""Workloads, Jobs, gangs, claims.

Reviews of ResourceClaim allocations: allowed if their pods were admitted with as many devices. Charges nothing.
"""

from typing import Literal, NamedTuple

from webhook.core.admission.domain_rules import judge_allocation
from webhook.core.model.amounts import gpu_number
from webhook.core.model.decision import Decision, NotApplicable, Outcome
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Enforcement, JobEvictions, OnWorkloadLimit
from webhook.core.model.reasons import LIMIT_CODES, Code, Reason, refusal_text
from webhook.core.world.world import World
from webhook.kube.admission.answers import Refusal, Status, encode_response
from webhook.kube.admission.job_review import (
    FailurePolicyChange,
    JobReview,
    decides_evictions,
    decode_job,
    failure_policy_change,
)
from webhook.kube.admission.reviews import (
    ClaimReview,
    Operation,
    Review,
    TooLargeError,
    WorkloadReview,
    decode_claim,
    decode_workload,
)
from webhook.kube.kinds.model import Budget, BudgetSpentError, Unknown, Workload, mapping, text
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import keys
from webhook.kube.objects.keys import Operation as Change
from webhook.kube.workloads.expand import NOT_JUDGED, expand, judge
from webhook.kube.workloads.gangs import gang_marks, marks_of
from webhook.server.review.verdicts import NOT_ENFORCED, Answer, object_record, verdict_of

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


# Reviews of workloads whose pod templates get their gang, domain, run time or minimum. Nothing is refused.


_GANGS = frozenset({keys.GANG, keys.TOPOLOGY})
_EXEMPT = Reason(Code.EXEMPT, "its namespace is exempt")
_TEMPLATES_KEPT = Reason(Code.NOT_A_CREATE, "its pod templates stay as they are")
_MARKED = Reason(Code.GANG_MARKED, "its pods start together or not at all")
_TIMED = Reason(Code.RUN_TIME_COPIED, "its pods have its run time")
_KEEPS_MINIMUM = Reason(Code.MINIMUM_COPIED, "its pods have its minimum")
_TEMPLATES_TOO_LARGE = Reason(Code.TOO_LARGE, "too large to be read: its pod templates stay as they are")


def answer_gang(body: bytes, world: World) -> Answer:
    """Return the answer to a review of a workload that may have such annotations.

    Raises ReviewError for a malformed review.
    """
    review: WorkloadReview | Review
    name = ""
    patch: tuple[Change, ...] = ()
    try:
        review = workload_review = decode_workload(body)
        reason, patch = gang_change(workload_review, world)
        document = mapping(workload_review.document)
        name = f"{text(document.get('kind'))}/{text(mapping(document.get('metadata')).get('name'))}"
    except TooLargeError as error:
        review, reason, name = error.review, _TEMPLATES_TOO_LARGE, error.review.name
    record = object_record(
        review,
        reason,
        world,
        name=name,
        outcome=Outcome.ADMIT if patch else Outcome.SKIP,
        team=world.tenancy(review.namespace).team_name,
    )
    return Answer(encode_response(review.uid, patch=patch, audit_annotations={"code": str(reason.code)}), record)


def gang_change(review: JobReview | WorkloadReview, world: World) -> tuple[Reason, tuple[Change, ...]]:
    """Return how a workload's pod templates change, with the reason."""
    if not world.policy.is_enforced:
        return NOT_ENFORCED.reason, ()
    if world.tenancy(review.namespace).is_exempt:
        return _EXEMPT, ()
    if review.operation is not Operation.CREATE or review.document is None:
        return _TEMPLATES_KEPT, ()
    try:
        patch = gang_marks(review.document, Budget())
    except BudgetSpentError:
        return _TEMPLATES_TOO_LARGE, ()
    if not patch:
        return _TEMPLATES_KEPT, ()
    marks = marks_of(review.document).keys()
    if not marks.isdisjoint(_GANGS):
        return _MARKED, patch
    return (_TIMED if keys.RUN_TIME in marks else _KEEPS_MINIMUM), patch


# Reviews of objects that create pods: all pods are judged together, with warnings. Nothing is charged.


class WorkloadVerdict(NamedTuple):
    """What goes into the answer and its record, by the mode of the policy.

    `would` is what the outcome would have been where policy is not enforced, "" where it is, or nothing was judged.
    """

    outcome: Outcome
    reason: Reason
    warnings: tuple[str, ...] = ()
    refusal: Refusal | None = None
    would: Outcome | Literal[""] = ""
    name: str = ""
    team: str = ""


class _Judged(NamedTuple):
    """The decision: `warnings` are all reasons, `refused` the limits for which policy refuses the object."""

    outcome: Outcome
    reason: Reason
    warnings: tuple[Reason, ...] = ()
    refused: tuple[Reason, ...] = ()
    name: str = ""
    team: str = ""


_NOT_ENFORCED = _Judged(Outcome.SKIP, NOT_ENFORCED.reason)


def answer_workload(body: bytes, world: World) -> Answer:
    """Return the answer to a review of an object that creates pods. Raises ReviewError for a malformed review."""
    review: WorkloadReview | Review
    try:
        review = workload_review = decode_workload(body)
        verdict = workload_verdict(workload_review, world)
    except TooLargeError as error:
        review = error.review
        verdict = _verdict(_too_large(review.name), world.policy.enforce)
    record = object_record(
        review,
        verdict.reason,
        world,
        name=verdict.name,
        outcome=verdict.outcome,
        team=verdict.team,
        would=verdict.would,
    )
    body = encode_response(
        review.uid,
        refusal=verdict.refusal,
        warnings=verdict.warnings,
        audit_annotations={"code": str(verdict.reason.code)},
    )
    return Answer(body, record)


def workload_verdict(review: JobReview | WorkloadReview, world: World) -> WorkloadVerdict:
    """Return the verdict on an object that creates pods.

    Unless policy is enforced nothing is refused, and warnings are returned only in mode `warn`.
    """
    mode = world.policy.enforce
    return _verdict(_judged(review, world) if mode is not Enforcement.OFF else _NOT_ENFORCED, mode)


def _verdict(judged: _Judged, mode: Enforcement) -> WorkloadVerdict:
    refusal = None
    if judged.refused and mode is Enforcement.ENFORCE:
        refusal = Refusal(Status.FORBIDDEN, refusal_text(judged.refused), judged.refused)
    is_silent = refusal is not None or mode is Enforcement.SHADOW
    warnings = () if is_silent else tuple(reason.text for reason in judged.warnings)
    outcome = judged.outcome
    would: Outcome | Literal[""] = ""
    if mode is not Enforcement.ENFORCE and judged is not _NOT_ENFORCED:
        outcome, would = Outcome.WARN if warnings else Outcome.SKIP, judged.outcome
    return WorkloadVerdict(
        outcome, judged.reason, warnings, refusal=refusal, would=would, name=judged.name, team=judged.team
    )


def _judged(review: JobReview | WorkloadReview, world: World) -> _Judged:
    if review.operation is not Operation.CREATE or review.document is None:
        return _Judged(Outcome.SKIP, Reason(Code.NOT_A_CREATE, "only creations are decided on"))
    kinds, budget = kind_table(world.policy.workloads.kinds), Budget()
    workload = expand(review.document, kinds=kinds, namespace=review.namespace, budget=budget)
    if isinstance(workload, Unknown) and workload.is_too_large:
        return _too_large(text(mapping(review.document.get("metadata")).get("name")))
    if not isinstance(workload, Workload):
        why = "it makes no pods" if workload is None else workload.reason
        return _Judged(Outcome.SKIP, Reason(Code.OPEN_COUNT, "{problem}", {"problem": why}))
    if workload.is_elsewhere:
        return _Judged(Outcome.SKIP, Reason(Code.OPEN_COUNT, "{problem}", {"problem": workload.warnings[0]}))
    name = f"{workload.kind}/{workload.name}"
    team = world.tenancy(review.namespace).team_name
    reasons = judge(workload, Requester(review.username), world, budget)
    if NOT_JUDGED in reasons:
        return _too_large(name)
    about = {"kind": workload.kind, "name": workload.name}
    found = tuple(Reason(each.code, "{kind} {name}: {why}", {**about, "why": each.statement}) for each in reasons)
    if found:
        refused: tuple[Reason, ...] = ()
        if world.policy.workloads.on_limit is OnWorkloadLimit.REJECT:
            refused = tuple(reason for reason in found if reason.code in LIMIT_CODES)
        outcome = Outcome.DENY if refused else Outcome.WARN
        return _Judged(outcome, (refused or found)[0], found, refused, name=name, team=team)
    problem = next((part.problem for part in workload.pod_sets if part.problem is not None), None)
    if problem is not None:
        return _Judged(Outcome.SKIP, Reason(Code.OPEN_COUNT, "{problem}", {"problem": problem}), name=name, team=team)
    return _Judged(
        Outcome.ADMIT, Reason(Code.WORKLOAD_FITS, "all of its pods fit the team and the nodes"), name=name, team=team
    )


def _too_large(name: str) -> _Judged:
    return _Judged(Outcome.SKIP, NOT_JUDGED, (NOT_JUDGED,), name=name)


# Reviews of Jobs: a rule is added so that evictions do not count as failures.
#
# A created Job that then has such a rule is also judged as a workload, and marked as a gang if its annotation asks for
# that: one call of the API server instead of up to three.


_RULE_KEPT = Reason(Code.NOT_A_CREATE, "its podFailurePolicy stays as it is")
_IGNORED = Reason(Code.EVICTIONS_IGNORED, "evictions do not count as its failures")
_RULE_TOO_LARGE = Reason(Code.TOO_LARGE, "too large to be read: its podFailurePolicy stays as it is")


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
        verdict = _judged_job(job_review, world)
    except TooLargeError as error:
        review, verdict = error.review, _Verdict(Outcome.SKIP, _RULE_TOO_LARGE)
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


def _judged_job(review: JobReview, world: World) -> _Verdict:
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
        return _RULE_KEPT, FailurePolicyChange()
    change = failure_policy_change(review)
    if change.patch:
        return _IGNORED, change
    if not change.warning:
        return _RULE_KEPT, change
    return Reason(Code.EVICTIONS_COUNT, "{warning}", {"warning": change.warning}), change
