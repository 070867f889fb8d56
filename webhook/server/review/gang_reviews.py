"""Reviews of workloads whose pod templates get their gang, domain, run time or minimum. Nothing is refused."""

from webhook.core.model.decision import Outcome
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.job_review import JobReview
from webhook.kube.admission.review import Operation, Review, TooLargeError
from webhook.kube.admission.review_response import encode_response
from webhook.kube.admission.workload_review import WorkloadReview, decode_workload
from webhook.kube.kinds.budget import Budget, BudgetSpentError
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects import keys
from webhook.kube.objects.json_patch import Operation as Change
from webhook.kube.workloads.gang_marks import gang_marks, marks_of
from webhook.server.review.answer import Answer, object_record
from webhook.server.review.shadow import NOT_ENFORCED

_GANGS = frozenset({keys.GANG, keys.TOPOLOGY})
_RUN_TIMES = frozenset({keys.RUN_TIME, keys.RUN_TIME_LIMIT})
_EXEMPT = Reason(Code.EXEMPT, "its namespace is exempt")
_KEPT = Reason(Code.NOT_A_CREATE, "its pod templates stay as they are")
_MARKED = Reason(Code.GANG_MARKED, "its pods start together or not at all")
_TIMED = Reason(Code.RUN_TIME_COPIED, "its pods have its run time")
_KEEPS_MINIMUM = Reason(Code.MINIMUM_COPIED, "its pods have its minimum")
_TOO_LARGE = Reason(Code.TOO_LARGE, "too large to be read: its pod templates stay as they are")


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
        review, reason, name = error.review, _TOO_LARGE, error.review.name
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
        return _KEPT, ()
    try:
        patch = gang_marks(review.document, Budget())
    except BudgetSpentError:
        return _TOO_LARGE, ()
    if not patch:
        return _KEPT, ()
    marks = marks_of(review.document).keys()
    if not marks.isdisjoint(_GANGS):
        return _MARKED, patch
    return (_KEEPS_MINIMUM if marks.isdisjoint(_RUN_TIMES) else _TIMED), patch
