"""AdmissionReviews of Jobs, and the podFailurePolicy rule by which evictions do not count as failures.

A Job's podFailurePolicy cannot change once the Job is there. So the rule is added on creation, and added again where an
update would take it out: kubectl apply and GitOps controllers send the list that is written in their manifest.
"""

from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.names import Namespace
from webhook.kube.admission.object_review import ObjectReview, read_request
from webhook.kube.admission.review import NOBODY, Envelope, Operation, ReviewError
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.json_patch import Operation as Change
from webhook.kube.reclaim.job_failures import DISRUPTION, Rule

MOST_RULES: Final = 20
"""The API server takes no more rules."""

RULE: Final[dict[str, Any]] = {
    "action": "Ignore",
    "onPodConditions": [{"type": DISRUPTION, "status": "True"}],
}
"""The first rule that matches decides, so this one comes first: an evicted pod may end with any exit code."""

_Rules = list[dict[str, Any]]


class _Policy(msgspec.Struct, frozen=True, gc=False):
    rules: _Rules = []


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    restart_policy: str = ""


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    template: _Template = _Template()
    pod_failure_policy: _Policy | None = None
    pod_replacement_policy: str | None = None


class ReviewedJob(msgspec.Struct, frozen=True, gc=False):
    """A Job under admission, as far as its failures are counted."""

    metadata: objects.ObjectMeta = objects.ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def rules(self) -> _Rules | None:
        """Read the rules of its podFailurePolicy; None where it has none."""
        policy = self.spec.pod_failure_policy
        return None if policy is None else policy.rules

    @property
    def is_left_alone(self) -> bool:
        """Tell whether its owner asks for no rule."""
        return (self.metadata.annotations or {}).get(keys.JOB_EVICTIONS) == keys.COUNT_EVICTIONS

    @property
    def can_have_rules(self) -> bool:
        """Tell whether the API server lets it have a podFailurePolicy."""
        return self.spec.template.spec.restart_policy == "Never"


class JobReview(NamedTuple):
    """One question of the API server about a Job; `old` is there on an update."""

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    job: ReviewedJob | None
    old: ReviewedJob | None


class FailurePolicyChange(NamedTuple):
    """How a Job's podFailurePolicy is changed; no `patch`: it stays. `told` is what its owner must know of it."""

    patch: tuple[Change, ...] = ()
    told: str = ""


class _Request(Envelope, frozen=True, gc=False, rename="camel"):
    object: ReviewedJob | None = None
    old_object: ReviewedJob | None = None


_decoder: Final = msgspec.json.Decoder(ObjectReview[_Request])


def decode_job(body: bytes) -> JobReview:
    """Read a review of a Job. Raises ReviewError, saying what was expected, for all else.

    Raises TooLargeError for a Job that is larger than any that is read.
    """
    request = read_request(
        body, _decoder, title="AdmissionReview of a Job", owner="every Job", checked_from=bounds.LARGE_BYTES
    )
    job, user = request.object, request.user_info or NOBODY
    return JobReview(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name or ("" if job is None else job.metadata.name or job.metadata.generate_name),
        dry_run=bool(request.dry_run),
        username=user.username,
        job=job,
        old=request.old_object,
    )


def is_rewritten(job: ReviewedJob, *, restart_policy: str) -> bool:
    """Tell whether a Job gets the rule when it is created; `restart_policy` is that of one which names none."""
    restarts = job.spec.template.spec.restart_policy or restart_policy
    return restarts == "Never" and not job.is_left_alone and bool(_on_create(job).patch)


def failure_policy_change(review: JobReview) -> FailurePolicyChange:
    """Decide what becomes of a Job's podFailurePolicy."""
    job = review.job
    if job is None or not job.can_have_rules or job.is_left_alone:
        return FailurePolicyChange()
    match review.operation:
        case Operation.CREATE:
            return _on_create(job)
        case Operation.UPDATE if review.old is not None:
            return FailurePolicyChange(_restoring(job, review.old))
        case _:
            return FailurePolicyChange()


def _on_create(job: ReviewedJob) -> FailurePolicyChange:
    rules = job.rules
    if rules is None:
        policy = {"rules": [RULE]}
        return FailurePolicyChange(
            ({"op": "add", "path": "/spec/podFailurePolicy", "value": policy}, *_replacement(job))
        )
    if len(rules) >= MOST_RULES:
        full = f"its podFailurePolicy has {len(rules)} rules, so none is added: evictions may count as failures"
        return FailurePolicyChange((), "" if _is_about_evictions(rules) else full)
    if _is_about_evictions(rules):
        return FailurePolicyChange()
    added: Change = {"op": "add", "path": "/spec/podFailurePolicy/rules/0", "value": RULE}
    told = "a first rule is added to its podFailurePolicy: evictions do not count as failures"
    return FailurePolicyChange((added, *_replacement(job)), told)


def _restoring(job: ReviewedJob, old: ReviewedJob) -> tuple[Change, ...]:
    """Keep the rule in a Job that has it, where all else of its rules stays as it was."""
    before, now = old.rules or [], job.rules or []
    if not before or before[0] != RULE:
        return ()
    if now == before:
        return _replacement(job)
    if now != before[1:]:
        return ()  # more is changed: the API server says that it cannot
    policy: Change = {"op": "add", "path": "/spec/podFailurePolicy", "value": {"rules": before}}
    return (policy, *_replacement(job))


def _replacement(job: ReviewedJob) -> tuple[Change, ...]:
    """Let a Job replace pods once they have failed: the API server takes no other way beside a podFailurePolicy.

    It fills in another default before it asks us, which cannot be told from what a user wrote.
    """
    if job.spec.pod_replacement_policy in (None, "Failed"):
        return ()
    return ({"op": "replace", "path": "/spec/podReplacementPolicy", "value": "Failed"},)


def _is_about_evictions(rules: _Rules) -> bool:
    """Tell whether its user decided about evictions already. Raises ReviewError for rules that are none."""
    try:
        return any(rule.is_about_evictions for rule in msgspec.convert(rules, list[Rule]))
    except msgspec.ValidationError as error:
        where = "request.object.spec.podFailurePolicy.rules"
        raise ReviewError(f"not a valid AdmissionReview of a Job: {objects.describe(error, under=where)}") from error
