"""AdmissionReviews of Jobs, and the podFailurePolicy rule by which evictions do not count as failures.

A Job's podFailurePolicy is immutable. So the rule is added on creation, and added again if an update would remove it:
kubectl apply and GitOps controllers send the list in their manifest.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from webhook.core.model.amounts import Namespace
from webhook.kube.admission.reviews import NO_USER, ObjectReview, Operation, RequestFields, ReviewError, read_request
from webhook.kube.kinds.job_failures import DISRUPTION, Rule
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.keys import Operation as Change
from webhook.kube.objects.keys import add, escape
from webhook.kube.pod.outcomes import AT_ONCE

MOST_RULES: Final = 20
"""The API server accepts no more rules."""

RULE: Final[dict[str, Any]] = {
    "action": "Ignore",
    "onPodConditions": [{"type": DISRUPTION, "status": "True"}],
}
"""The first matching rule applies, so this one comes first: an evicted pod may end with any exit code."""

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TITLE: Final = "AdmissionReview of a Job"
_AT_ONCE_WARNING: Final = f"podReplacementPolicy {AT_ONCE} allows no rule: evictions may count as failures"
_Rules = list[dict[str, Any]]
_What = TypeVar("_What")


class _Policy(msgspec.Struct, frozen=True, gc=False):
    rules: _Rules | None = None  # null if it has none


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    restart_policy: str = ""


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    template: _Template = _Template()
    pod_failure_policy: _Policy | None = None
    pod_replacement_policy: str | None = None


class _Manager(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    operation: str = ""
    fields_v1: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _Metadata(objects.ObjectMeta, frozen=True, gc=False, rename="camel"):
    managed_fields: list[_Manager] | None = None


class ReviewedJob(msgspec.Struct, frozen=True, gc=False):
    """The fields of a Job under admission that concern its failures."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()

    @property
    def rules(self) -> _Rules | None:
        """The rules of its podFailurePolicy, or None if it has none."""
        policy = self.spec.pod_failure_policy
        return (policy.rules or None) if policy is not None else None

    @property
    def is_made_by_controller(self) -> bool:
        """Whether a controller made it, such as a CronJob's: no one reads its warnings."""
        return any(owner.controller for owner in self.metadata.owner_references or ())

    @property
    def has_opted_out(self) -> bool:
        """Whether its annotation asks for no rule."""
        return (self.metadata.annotations or {}).get(keys.JOB_EVICTIONS) == keys.COUNT_EVICTIONS

    @property
    def asks_to_replace_at_once(self) -> bool:
        """Whether its manifest sets podReplacementPolicy TerminatingOrFailed, as far as kubectl apply shows that.

        The API server fills in the default before the webhook, where it looks the same as a user's value.
        """
        if self.spec.pod_replacement_policy != AT_ONCE:
            return False
        applied = (self.metadata.annotations or {}).get(_APPLIED, "")
        managers = [each.fields_v1 for each in self.metadata.managed_fields or () if each.operation == "Apply"]
        return _has_replacement(applied) or any("f:podReplacementPolicy" in _spec_of(each) for each in managers)

    @property
    def can_have_rules(self) -> bool:
        """Whether the API server allows it a podFailurePolicy."""
        return self.spec.template.spec.restart_policy == "Never"


class JobReview(NamedTuple):
    """A review of a Job; `old` is set on an update. `document` is the whole Job, as plain values."""

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    job: ReviewedJob | None
    old: ReviewedJob | None
    document: dict[str, Any] | None


class FailurePolicyChange(NamedTuple):
    """The change of a Job's podFailurePolicy; empty `patch`: none. `warning` is a text for its owner."""

    patch: tuple[Change, ...] = ()
    warning: str = ""


class _Request(RequestFields, frozen=True, gc=False, rename="camel"):
    object: dict[str, Any] | None = None
    old_object: ReviewedJob | None = None


_decoder: Final = msgspec.json.Decoder(ObjectReview[_Request])


def decode_job(body: bytes) -> JobReview:
    """Decode a review of a Job.

    Raises ReviewError, with what was expected, if the body is not one, and TooLargeError if the Job is too large.
    """
    request = read_request(body, _decoder, title=_TITLE, owner="every Job", checked_from=bounds.LABEL_BYTES)
    job = None if request.object is None else _converted(request.object, ReviewedJob, under="request.object")
    user = request.user_info or NO_USER
    return JobReview(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name or ("" if job is None else job.metadata.name or job.metadata.generate_name),
        dry_run=bool(request.dry_run),
        username=user.username,
        job=job,
        old=request.old_object,
        document=request.object,
    )


def decides_evictions(job: ReviewedJob, change: FailurePolicyChange) -> bool:
    """Whether a created Job has a rule about evictions after the change, and its annotation does not leave it alone.

    The webhooks for all kinds of workloads are not called for such Jobs (`conditions.of_workloads`). Raises ReviewError
    if its rules are malformed.
    """
    if job.has_opted_out or not job.can_have_rules or job.asks_to_replace_at_once:
        return False
    return bool(change.patch) or (len(job.rules or ()) <= MOST_RULES and _match_evictions(job.rules or []))


def gets_rule(job: ReviewedJob, *, restart_policy: str) -> bool:
    """Whether a Job gets the rule when it is created; `restart_policy` is the default if the Job sets none."""
    restarts = job.spec.template.spec.restart_policy or restart_policy
    return restarts == "Never" and not job.has_opted_out and bool(_on_create(job).patch)


def failure_policy_change(review: JobReview) -> FailurePolicyChange:
    """Return how a Job's podFailurePolicy changes."""
    job = review.job
    if job is None or not job.can_have_rules or job.has_opted_out:
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
    if job.asks_to_replace_at_once:
        return FailurePolicyChange((), _AT_ONCE_WARNING)
    if rules is None:
        policy = {"rules": [RULE]}
        return FailurePolicyChange(
            ({"op": "add", "path": "/spec/podFailurePolicy", "value": policy}, *_replacement(job))
        )
    if len(rules) >= MOST_RULES:
        full = f"its podFailurePolicy has {len(rules)} rules, so none is added: evictions may count as failures"
        return FailurePolicyChange((), "" if _match_evictions(rules) else full)
    if _match_evictions(rules):
        return FailurePolicyChange()
    added: Change = {"op": "add", "path": "/spec/podFailurePolicy/rules/0", "value": RULE}
    warning = "a first rule is added to its podFailurePolicy: evictions do not count as failures"
    return FailurePolicyChange((added, *_replacement(job)), warning)


def _restoring(job: ReviewedJob, old: ReviewedJob) -> tuple[Change, ...]:
    """Return the operations that keep the rule in a Job that has it, if no other rule changes."""
    before, now = old.rules or [], job.rules or []
    if not before or before[0] != RULE:
        return ()
    if now == before:
        return _replacement(job)
    if now != before[1:]:
        return ()  # other rules change too: the API server refuses the update
    policy: Change = {"op": "add", "path": "/spec/podFailurePolicy", "value": {"rules": before}}
    return (policy, *_replacement(job))


def _replacement(job: ReviewedJob) -> tuple[Change, ...]:
    """Return the operations that set podReplacementPolicy Failed, the only value allowed with a podFailurePolicy.

    The annotation says what it was: a pod on a lost node never ends, and by this the evictor replaces it all the same.
    """
    before = job.spec.pod_replacement_policy
    if before in (None, "Failed"):
        return ()
    annotations = job.metadata.annotations
    path = "/metadata/annotations"
    noted = (
        add(path, {keys.POD_REPLACEMENT: before})
        if annotations is None
        else add(f"{path}/{escape(keys.POD_REPLACEMENT)}", before)
    )
    return ({"op": "replace", "path": "/spec/podReplacementPolicy", "value": "Failed"}, noted)


def _has_replacement(applied: str) -> bool:
    """Whether a manifest as kubectl apply records it sets a podReplacementPolicy."""
    try:
        manifest = msgspec.json.decode(applied) if applied else None
    except msgspec.MsgspecError:
        return False
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    return isinstance(spec, dict) and "podReplacementPolicy" in spec


def _spec_of(fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (fields or {}).get("f:spec")
    return found if isinstance(found, dict) else {}


def _match_evictions(rules: _Rules) -> bool:
    """Whether the user's rules already match evictions. Raises ReviewError if they are malformed."""
    found = _converted(rules, list[Rule], under="request.object.spec.podFailurePolicy.rules")
    return any(rule.is_about_evictions for rule in found)


def _converted(value: object, what: type[_What], *, under: str) -> _What:
    """Convert a part of the review. Raises ReviewError if it is malformed."""
    try:
        return msgspec.convert(value, what)
    except msgspec.ValidationError as error:
        raise ReviewError(f"not a valid {_TITLE}: {objects.describe(error, under=under)}") from error
