"""Answers to reviews.

The ledger as the reviewer needs it: in the cluster, or in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, assert_never

from webhook.cluster.writes.events import OwnerEvent
from webhook.core.admission.admission import decide
from webhook.core.admission.assessment import Assessment, assess
from webhook.core.model.amounts import NodeName, Units, gpu_number
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.policy import Enforcement
from webhook.core.model.reasons import Code, Reason, refusal_text
from webhook.core.quota.charges import InFlightCharge, LedgerDecision, flight_of
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.admission.answers import Refusal, Status
from webhook.kube.admission.job_review import JobReview
from webhook.kube.admission.reviews import ClaimReview, Operation, Review, WorkloadReview
from webhook.kube.objects.events import MAX_MESSAGE_BYTES, EventReason
from webhook.kube.objects.objects import controller_of
from webhook.kube.pod.pods import uid_of


class Ledger(Protocol):
    """Stores charges."""

    @property
    def is_watched(self) -> bool:
        """Whether a watch will show the pods that are charged, with all of their fields."""
        ...

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Judge a pod and charge it by its UID if it is admitted, once for any number of calls.

        `judge` decides on the present world. It is called at least once, and again if another replica was faster; what
        it admits is in the world before anything else is judged. The last decision is returned, or a Retry where the
        charge could not be made in time. `deadline`, in the event loop's time, is when the caller
        gives up, and `is_gone` returns whether the caller has left: nothing stays charged for it then.
        """
        ...

    def enter_line(self, waiting: WaitingPod) -> None:
        """Count a pod that was let into its team's line, until a watch shows it or its deletion is reviewed."""
        ...

    def release(self, review: Review) -> None:
        """Release a pod that was deleted, where no watch would show it."""
        ...


# The ledger of a world without a cluster: in memory, with the sums of the world only.


_TOO_LATE = Retry(Reason(Code.RACE_LOST, "the caller's time was up before the charge: try again"))


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Charges in memory: an admitted pod exists from then on, until its deletion is reviewed."""

    world: World
    clock: Callable[[], float]

    @property
    def is_watched(self) -> bool:
        """No watch will show the pods that are charged here."""
        return False

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Judge and charge at once: there are no other replicas, but the caller may have left."""
        judged = judge()
        if judged.flight is not None:
            if self.clock() >= deadline or is_gone():
                return _TOO_LATE
            self.world.add_pod(judged.flight)
        return judged.decision

    def enter_line(self, waiting: WaitingPod) -> None:
        """Keep a queued pod until its deletion is reviewed: no leader releases it."""
        self.world.set_waiting(waiting)

    def release(self, review: Review) -> None:
        """Release the charge of a deleted pod."""
        if review.old_pod is not None:
            metadata = review.old_pod.metadata
            uid = uid_of(metadata, review.namespace)
            self.world.remove_pod(uid)


# Events about decisions on the owner of a pod: controllers show refusals and warnings to no user. Pure.


_WAITS: Final = {Code.NO_ROOM_NOW: EventReason.NO_ROOM_NOW, Code.NEVER_FITS: EventReason.NEVER_FITS}


def notice_of(review: Review, decision: Decision) -> OwnerEvent | None:
    """Return the Event for the controller of a pod: a refusal, or that the pod finds no room.

    None where there is nothing to report, no controller, or no change: a dry run, a name that is taken.
    """
    if review.dry_run or review.pod is None or review.operation is not Operation.CREATE:
        return None
    found = _notice(decision)
    owner = controller_of(review.pod.metadata, namespace=review.namespace)
    if owner is None or found is None:
        return None
    return OwnerEvent(owner, found.reason, found.text[:MAX_MESSAGE_BYTES], found.code)


class _Notice(NamedTuple):
    reason: EventReason
    text: str
    code: Code


def _notice(decision: Decision) -> _Notice | None:
    match decision:
        case Deny(reasons=reasons) if reasons[0].code is not Code.ALREADY_EXISTS:
            return _Notice(EventReason.REFUSED, refusal_text(reasons), reasons[0].code)
        case Admit(warnings=warnings):
            found = (each for each in warnings if each.code in _WAITS)
            return next((_Notice(_WAITS[each.code], f"{each.text} ({each.code})", each.code) for each in found), None)
        case _:
            return None


# Reviews of pods while policy is not enforced: pods are judged and charged as if it were, and all are allowed.


NOT_ENFORCED: Final = NotApplicable(Reason(Code.NOT_ENFORCED, "policy is not enforced: nothing is changed"))
_ONLY_COUNTED: Final = Reason(Code.NOT_ENFORCED, "policy is not enforced: only counted")


class ReviewCaller(NamedTuple):
    """The caller of a review, and its deadline; a dry run is charged nothing."""

    requester: Requester
    dry_run: bool
    deadline: float
    is_gone: Callable[[], bool]


class ShadowDecision(NamedTuple):
    """A pod with its demand resolved, and the decision on it."""

    pod: Pod
    decision: Decision


class Shadow:
    """Judges pods that are always allowed; `shadow_labels` has the tiers of earlier pods."""

    def __init__(self, world: World, ledger: Ledger, shadow_labels: ShadowLabels) -> None:
        self._world = world
        self._ledger = ledger
        self._shadow_labels = shadow_labels

    async def judge(self, pod: Pod, caller: ReviewCaller) -> ShadowDecision:
        """Return the decision on a pod as if policy were enforced, and charge the pod.

        A pod that would be refused is charged as borrowing, since it is created anyway. A ledger that fails delays no
        pod.
        """
        judged = ShadowDecision(pod, NOT_ENFORCED)

        def judgement() -> LedgerDecision:
            nonlocal judged
            self._shadow_labels.update_tiers((self._world.tenancy(pod.namespace).team_name,))
            assessed = assess(pod, caller.requester, self._world)
            decision = decide(assessed, self._world)
            judged = ShadowDecision(assessed.pod, decision)
            charge = self._charge(assessed, decision)
            passed = decision if isinstance(decision, NotApplicable) else NotApplicable(_ONLY_COUNTED, charge)
            return LedgerDecision(passed, None if charge is None else self._flight(assessed.pod, charge))

        if caller.dry_run:
            judgement()
        else:
            await self._ledger.commit(judgement, deadline=caller.deadline, is_gone=caller.is_gone)
        return judged

    def _charge(self, assessed: Assessment, decision: Decision) -> Charge | None:
        """Return what a pod is charged; nothing before its demand is known: the watch will show it.

        Nor is a pod with Fairgate's scheduling gate charged: while it has it, it uses nothing.
        """
        if assessed.pod.is_queued:
            return None
        if isinstance(decision, Admit | NotApplicable):
            return decision.charge
        if not assessed.is_counted:
            return None
        pod = assessed.pod
        return Charge(self._world.tenancy(pod.namespace).team_name, Tier.PREEMPTIBLE, pod.demand.gpus)

    def _flight(self, pod: Pod, charge: Charge) -> InFlightCharge:
        flight = flight_of(pod, charge, is_watched=self._ledger.is_watched)
        labeled = self._shadow_labels.labeled(flight.pod, team=charge.team, tier=charge.tier)
        return flight._replace(pod=labeled)


def warnings_of(decision: Decision) -> tuple[str, ...]:
    """Return warnings with the decision on a pod under enforcement."""
    if isinstance(decision, Deny):
        return tuple(f"Fairgate would refuse this pod ({each.code}): {each.text}" for each in decision.reasons)
    if isinstance(decision, Queue):
        return (f"Fairgate would queue this pod ({decision.reason.code}): {decision.reason.text}",)
    if not isinstance(decision, Admit):
        return ()
    tier, why = decision.charge.tier, decision.reason
    return (f"Fairgate would make this pod {tier} ({why.code}): {why.text}", *(each.text for each in decision.warnings))


# The meaning of a decision for the response, the log and the metrics, before it is encoded. Pure.


class ReviewVerdict(NamedTuple):
    """The outcome of a request with its reason, and what goes into the answer.

    `would` is what the outcome would have been where policy is not enforced, None where it is, or nothing was judged.
    """

    outcome: Outcome
    reason: Reason
    charge: Charge | None = None
    refusal: Refusal | None = None
    nodes: tuple[NodeName, ...] = ()
    warnings: tuple[str, ...] = ()
    would: Outcome | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the request is refused, for now or for good, or would be."""
        return (self.would or self.outcome) in _REFUSED

    def not_enforced(self, warnings: tuple[str, ...] = (), *, is_judged: bool = True) -> "ReviewVerdict":
        """Return the verdict where policy is not enforced: allowed, at most with warnings."""
        outcome = Outcome.WARN if warnings else Outcome.SKIP
        return self._replace(
            outcome=outcome, refusal=None, warnings=warnings, would=self.outcome if is_judged else None
        )


_REFUSED = frozenset({Outcome.DENY, Outcome.RETRY})
_ADMIT, _SKIP = Outcome.ADMIT, Outcome.SKIP  # a look at an enum's member costs 0.1 us
_NO_WARNINGS: tuple[str, ...] = ()


def verdict_of(decision: Decision) -> ReviewVerdict:
    """Return the verdict of a decision where policy is enforced."""
    match decision:
        case Admit():
            warnings = tuple([each.text for each in decision.warnings]) if decision.warnings else _NO_WARNINGS
            return ReviewVerdict(_ADMIT, decision.reason, decision.charge, None, decision.node_choice.nodes, warnings)
        case NotApplicable():
            return ReviewVerdict(_SKIP, decision.reason, decision.charge)
        case Queue(reason=reason, warnings=warnings):
            return ReviewVerdict(Outcome.QUEUE, reason, warnings=(reason.text, *(each.text for each in warnings)))
        case Deny(reasons):
            text = refusal_text(reasons)
            reason = Reason(reasons[0].code, "{refusal}", {"refusal": text})
            status = Status.ALREADY_EXISTS if reason.code is Code.ALREADY_EXISTS else Status.FORBIDDEN
            return ReviewVerdict(Outcome.DENY, reason, refusal=Refusal(status, text, reasons))
        case Retry(reason, after_seconds):
            refusal = Refusal(Status.TOO_MANY_REQUESTS, f"{reason.text} ({reason.code})", (reason,), after_seconds)
            return ReviewVerdict(Outcome.RETRY, reason, refusal=refusal)
        case _ as never:
            assert_never(never)


# The interface between the HTTP server and the reviewer.


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
