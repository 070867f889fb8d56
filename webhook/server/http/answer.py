"""What the HTTP shell asks of the gate, and what it gets back."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from webhook.core.model.reason import Reason
from webhook.core.world.world import World
from webhook.kube.admission.claim_review import ClaimReview
from webhook.kube.admission.job_review import JobReview
from webhook.kube.admission.review import Review
from webhook.kube.admission.workload_review import WorkloadReview


class Record(NamedTuple):
    """What the canonical log line and the metrics tell of one decision.

    `outcome`, what was answered: admit, warn, deny, retry or skip. Unless policy is enforced, `would` is what
    would have been answered, "" where nothing was judged; the code and all else are of that. `uid` is the review's,
    `pod_uid` the pod's, "" as long as it has none. `gpus` are 0 where none are charged or asked for.
    """

    operation: str
    namespace: str
    name: str
    owner: str
    uid: str
    pod_uid: str
    user: str
    dry_run: bool
    outcome: str
    code: str
    team: str
    tier: str
    gpus: float
    nodes: tuple[str, ...]
    policy: str
    message: str
    enforce: str = "enforce"
    would: str = ""


def object_record(
    review: ClaimReview | JobReview | WorkloadReview | Review,
    reason: Reason,
    world: World,
    *,
    name: str,
    outcome: str,
    team: str,
    gpus: float = 0,
    would: str = "",
) -> Record:
    """Record a decision about an object that is no pod: it has no owner, tier or nodes."""
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
        code=reason.code,
        team=team,
        tier="",
        gpus=gpus,
        nodes=(),
        policy=world.policy.hash,
        message=reason.text,
        enforce=world.policy.enforce.value,
        would=would,
    )


class Answer(NamedTuple):
    """A whole AdmissionReview to send back, and what to remember of it."""

    body: bytes
    record: Record


class Reviewer(Protocol):
    """Answers admission reviews. Bytes in, bytes out.

    `deadline`, in the event loop's time, is when work must stop, so that nothing is charged after the caller left: the
    shell never cancels a review that has begun. Raises webhook.kube.admission.review.ReviewError for a malformed
    review; any other exception is a bug.
    """

    async def mutate(self, body: bytes, *, deadline: float) -> Answer:
        """Answer a call of the mutating webhook."""
        ...

    async def validate(self, body: bytes, *, deadline: float, is_gone: Callable[[], bool]) -> Answer:
        """Answer a call of the validating webhook; `is_gone` tells whether the caller hung up meanwhile."""
        ...

    async def workloads(self, body: bytes, *, deadline: float) -> Answer:
        """Answer a call about an object that makes pods."""
        ...

    async def claims(self, body: bytes, *, deadline: float) -> Answer:
        """Answer a call about a claim that gets its devices."""
        ...

    async def jobs(self, body: bytes, *, deadline: float) -> Answer:
        """Answer a call about a Job that is created or changed."""
        ...
