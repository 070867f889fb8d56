"""Reviews of objects that create pods: all pods are judged together, with warnings. Nothing is charged."""

from typing import Literal, NamedTuple

from webhook.core.model.decision import Outcome
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Enforcement
from webhook.core.model.reason import LIMIT_CODES, Code, Reason, refusal_text
from webhook.core.model.workload_rules import OnWorkloadLimit
from webhook.core.world.world import World
from webhook.kube.admission.job_review import JobReview
from webhook.kube.admission.review import Operation, Review, TooLargeError
from webhook.kube.admission.review_response import Refusal, Status, encode_response
from webhook.kube.admission.workload_review import WorkloadReview, decode_workload
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.model import Unknown, Workload, mapping, text
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import expand
from webhook.kube.workloads.parts import NOT_JUDGED, judge
from webhook.server.review.answer import Answer, object_record
from webhook.server.review.shadow import NOT_ENFORCED


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
