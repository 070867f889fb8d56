"""The interface between the HTTP server and the reviewer."""

from typing import Literal, NamedTuple

from webhook.core.model.amount import Units, gpu_number
from webhook.core.model.decision import Outcome
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Enforcement
from webhook.core.model.reason import Code, Reason
from webhook.core.world.world import World
from webhook.kube.admission.claim_review import ClaimReview
from webhook.kube.admission.job_review import JobReview
from webhook.kube.admission.review import Review
from webhook.kube.admission.workload_review import WorkloadReview
from webhook.server.review.verdict import ReviewVerdict


class Record(NamedTuple):
    """The fields of one decision in the canonical log line and the metrics.

    `outcome` is that of the response. Unless policy is enforced, `would` is the outcome under enforcement, "" where
    nothing was judged; the code and all other fields are of that decision. `uid` is the review's, `pod_uid` the pod's,
    "" as long as it has none. `gpus` are 0 where none are charged or requested.
    """

    operation: str
    namespace: str
    name: str
    owner: str
    uid: str
    pod_uid: str
    user: str
    dry_run: bool
    outcome: Outcome
    reason: Reason
    team: str
    tier: str
    gpus: float
    nodes: tuple[str, ...]
    policy: str
    enforce: str = "enforce"
    would: Outcome | Literal[""] = ""

    @property
    def code(self) -> Code:
        """The code of the reason."""
        return self.reason.code

    @property
    def message(self) -> str:
        """The reason as text."""
        return self.reason.text


def object_record(
    review: ClaimReview | JobReview | WorkloadReview | Review,
    reason: Reason,
    world: World,
    *,
    name: str,
    outcome: Outcome,
    team: str,
    gpus: float = 0,
    would: Outcome | Literal[""] = "",
) -> Record:
    """Return the record of a decision about an object that is no pod: it has no owner, tier or nodes."""
    return Record(
        operation=review.operation,
        namespace=review.namespace,
        name=name,
        owner="",
        uid=review.uid,
        pod_uid="",
        user=review.username,
        dry_run=review.dry_run,
        outcome=outcome,
        reason=reason,
        team=team,
        tier="",
        gpus=gpus,
        nodes=(),
        policy=world.policy.hash,
        enforce=world.policy.enforce,
        would=would,
    )


def pod_record(review: Review, pod: Pod | None, verdict: ReviewVerdict, world: World, *, mode: Enforcement) -> Record:
    """Return the record of a decision about a pod; `pod` is None where it could not be read."""
    charge, owner = verdict.charge, pod.owner if pod is not None else None
    team, tier = "", ""
    gpus: Units = 0
    if charge is not None:
        team, tier, gpus = charge.team, charge.tier, charge.gpus
    elif pod is not None and (verdict.is_refused or Outcome.QUEUE in (verdict.outcome, verdict.would)):
        team, gpus = world.tenancy(pod.namespace).team_name, pod.demand.gpus
    return Record(
        operation=review.operation,
        namespace=review.namespace,
        name=review.name or (review.pod.metadata.generate_name if review.pod is not None else ""),
        owner="" if owner is None else f"{owner.kind}/{owner.name}",
        uid=review.uid,
        pod_uid="" if pod is None else pod.uid,
        user=review.username,
        dry_run=review.dry_run,
        outcome=verdict.outcome,
        reason=verdict.reason,
        team=team,
        tier=tier,
        gpus=gpu_number(gpus),
        nodes=verdict.nodes,
        policy=world.policy.hash,
        enforce=mode,
        would=verdict.would or "",
    )


class Answer(NamedTuple):
    """An encoded AdmissionReview response, and its record."""

    body: bytes
    record: Record
