"""The admission reviewer: it decodes a review, has the core decide, and encodes the answer.

Between reading the world, deciding and adding the result to the ledger nothing is awaited: on one event loop that is
the lock, so concurrent requests never exceed a limit together.
"""

from collections.abc import Callable, Sequence
from typing import Final

from webhook.cluster.writes.events import OwnerEvent
from webhook.core.admission.admission import ProtectedKeys, decide, guard, guard_demand
from webhook.core.admission.assessment import assess
from webhook.core.admission.verification import confirm
from webhook.core.model import decision as decision_annotation
from webhook.core.model.amounts import Namespace, Uid, format_gpus
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, lacks_room
from webhook.core.model.pod import NO_UID, Pod, Requester
from webhook.core.model.policy import Enforcement
from webhook.core.model.reasons import Code, Reason, waits_for
from webhook.core.quota.charges import LedgerDecision, flight_of
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.kube.admission.answers import MAX_REFUSAL_CHARACTERS, MAX_WARNING_CHARACTERS, encode_response
from webhook.kube.admission.copied_pod import AsCreated, may_be_copied, without_copied_decision
from webhook.kube.admission.pod_patch import node_choice_operations, operations, queue_operations
from webhook.kube.admission.reviews import Operation, Review, TooLargeError, decode
from webhook.kube.objects import keys, objects
from webhook.kube.objects.keys import Operation as Change
from webhook.kube.pod.pods import InvalidPod, fallback_uid, is_queued, to_pod
from webhook.kube.pod.waiting import new_in_line, read_waits
from webhook.server.review.verdicts import (
    NOT_ENFORCED,
    Answer,
    Ledger,
    ReviewCaller,
    ReviewVerdict,
    Shadow,
    notice_of,
    pod_record,
    verdict_of,
    warnings_of,
)
from webhook.server.review.workload_reviews import answer_claim, answer_gang, answer_job, answer_workload


def _never() -> bool:
    return False


class AdmissionReviewer:
    """Answers admission reviews from one world. Bytes in, bytes out.

    Raises webhook.kube.admission.reviews.ReviewError for a malformed review; any other exception is a bug.

    With `unix_time` concurrent pods get different room: advised room is reserved for a moment. Without it each pod
    passes both webhooks before the next one is created, and no message has an age.
    `notify_owner` reports refusals, and pods that find no room, to their controllers. `on_refusal` is called with each
    refused pod, None if it could not be read.
    """

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        *,
        now_text: Callable[[], str],
        shadow_labels: ShadowLabels | None = None,
        unix_time: Callable[[], float] | None = None,
        notify_owner: Callable[[OwnerEvent], None] | None = None,
        on_refusal: Callable[[Review, Pod | None, Reason], None] | None = None,
    ) -> None:
        self.world = world
        self._unix_time = unix_time
        self._notify_owner = notify_owner
        self._on_refusal = on_refusal
        self._ledger = ledger
        self._shadow = Shadow(world, ledger, shadow_labels or ShadowLabels(world))
        self._now_text = now_text

    def mutate(self, body: bytes) -> Answer:
        """Return a patch of labels, decision and node selection for a pod that is created, or a refusal."""
        try:
            review = decode(body)
        except TooLargeError as error:
            return self._too_large(error)
        if review.operation is not _CREATE or review.pod is None:
            return self._answer(review, None, _NOT_A_CREATE)
        if not self.world.policy.is_enforced:
            return self._answer(review, None, NOT_ENFORCED)
        found, patch = review.pod, _UNCHANGED
        if may_be_copied(found):
            found, patch = self._as_created(found, review.namespace)
        pod = self._read(review, found)
        if not isinstance(pod, Pod):
            return self._answer(review, None, pod)
        pod, decision = self._advise(pod, Requester(review.username), is_dry_run=review.dry_run)
        if isinstance(decision, Admit):
            made = operations(found, decision, now_text=self._now_text())
            patch = [*patch, *made] if patch else made
        elif isinstance(decision, Queue):
            patch = [*patch, *queue_operations(found, decision, now_text=self._now_text())]
        elif not isinstance(decision, NotApplicable):
            patch = _UNCHANGED
        elif decision.node_choice is not None:
            patch = [*patch, *node_choice_operations(found, decision.node_choice)]
        return self._answer(review, pod, decision, patch=patch)

    def _as_created(self, found: objects.Pod, namespace: Namespace) -> AsCreated:
        """Return a pod without what the decision on another one wrote."""
        if self.world.tenancy(namespace).is_exempt:
            return AsCreated(found, [])
        try:
            return without_copied_decision(found, self.world.policy.pools, now_text=self._now_text())
        except ValueError:
            return AsCreated(found, [])  # reported where the pod is read

    def _advise(self, pod: Pod, requester: Requester, *, is_dry_run: bool) -> tuple[Pod, Decision]:
        world = self.world
        assessed = assess(pod, requester, world)
        pod, decision = assessed.pod, decide(assessed, world)
        if self._unix_time is None:
            return pod, decision
        if lacks_room(decision) and world.tentative.clear(world.fleet):
            decision = decide(assessed, world)
        if isinstance(decision, Admit) and decision.node_choice.nodes and not is_dry_run:
            taken = pod if decision.demand is pod.demand else pod._replace(demand=decision.demand)
            world.tentative.reserve(world.fleet, decision.node_choice.nodes[0], taken, now=world.now)
        return pod, decision

    async def validate(self, body: bytes, *, deadline: float, is_gone: Callable[[], bool] = _never) -> Answer:
        """Charge a pod that is created, or guard the protected keys of one that is updated.

        A deleted pod is released here if no watch shows that it is gone. `deadline`, in the event loop's time, is when
        work must stop, so that nothing is charged after the caller left: the HTTP server never cancels a review that
        has begun. `is_gone` returns whether the caller closed the connection.
        """
        try:
            review = decode(body)
        except TooLargeError as error:
            return self._too_large(error)
        match review.operation:
            case Operation.CREATE if review.pod is not None:
                return await self._commit(review, review.pod, deadline, is_gone)
            case Operation.UPDATE if review.pod is not None and review.old_pod is not None:
                if not self.world.policy.is_enforced:
                    return self._answer(review, None, NOT_ENFORCED)
                return self._answer(review, None, self._guarded(review, review.old_pod, review.pod))
            case Operation.DELETE if not review.dry_run:
                self._ledger.release(review)
        return self._answer(review, None, _NOT_A_CREATE)

    def _guarded(self, review: Review, old: objects.OldPod, new: objects.Pod) -> Decision:
        decision = guard(_keys(old), _keys(new))
        if isinstance(decision, Deny) or not is_queued(old.spec):
            return decision
        pod = self._read(review, new)
        return guard_demand(pod) if isinstance(pod, Pod) else decision

    def workloads(self, body: bytes) -> Answer:
        """Warn of a created object whose pods can never all run together."""
        return answer_workload(body, self.world)

    def claims(self, body: bytes) -> Answer:
        """Allow the allocation of a claim if its pods were admitted with as many devices."""
        try:
            return answer_claim(body, self.world)
        except TooLargeError as error:
            return self._too_large(error)

    def jobs(self, body: bytes) -> Answer:
        """Add a rule to a Job so that evictions of its pods do not count as failures, and judge it as a workload."""
        return answer_job(body, self.world)

    def gangs(self, body: bytes) -> Answer:
        """Copy the annotation that makes a workload's pods a gang to its pod templates."""
        return answer_gang(body, self.world)

    def _too_large(self, error: TooLargeError) -> Answer:
        """Refuse an object that is too large to be read, as all that cannot be judged."""
        review = error.review
        if not self.world.policy.is_enforced:
            return self._answer(review, None, NOT_ENFORCED)
        if review.operation not in (_CREATE, Operation.UPDATE) or self.world.tenancy(review.namespace).is_exempt:
            return self._answer(review, None, _NOT_A_CREATE)
        return self._answer(review, None, Deny((Reason(Code.TOO_LARGE, "{problem}", {"problem": error.text}),)))

    async def _commit(self, review: Review, found: objects.Pod, deadline: float, is_gone: Callable[[], bool]) -> Answer:
        if self.world.policy.enforce is _OFF:
            return self._answer(review, None, NOT_ENFORCED)
        # kube-apiserver fills in name and UID before it validates; reviews written by hand may lack them
        uid = fallback_uid(review.namespace, review.name) if review.name else Uid(review.uid)
        pod = self._read(review, found, name=review.name, uid=uid)
        if not isinstance(pod, Pod):
            return self._answer(review, None, pod)
        requester = Requester(review.username)
        if (mode := self.world.policy.enforce) is not _ENFORCE:
            caller = ReviewCaller(requester, review.dry_run, deadline, is_gone)
            pod, decision = await self._shadow.judge(pod, caller)
            return self._answer(review, pod, decision, mode=mode)
        resolved = pod

        def judge() -> LedgerDecision:
            nonlocal resolved
            assessed = assess(pod, requester, self.world)
            resolved = assessed.pod
            return self._judgement(resolved, confirm(assessed, self.world))

        if review.dry_run:
            decision = judge().decision
        else:
            decision = await self._ledger.commit(judge, deadline=deadline, is_gone=is_gone)
            if isinstance(decision, Queue):
                self._ledger.enter_line(new_in_line(resolved, decision, found, now=self.world.now))
            self._release_advice(resolved, decision)
        if isinstance(decision, Queue) and (waits := read_waits(found.metadata.annotations or {})) is not None:
            why = waits_for(decision.reason.code, waits.reason.statement, place=waits.place)
            decision = decision._replace(reason=why)  # clients show equal texts once
        return self._answer(review, resolved, decision)

    def _judgement(self, pod: Pod, decision: Decision) -> LedgerDecision:
        if not isinstance(decision, Admit | NotApplicable) or (charge := decision.charge) is None:
            return LedgerDecision(decision, None)
        nodes = decision.node_choice.nodes if isinstance(decision, Admit) else ()
        return LedgerDecision(decision, flight_of(pod, charge, nodes=nodes, is_watched=self._ledger.is_watched))

    def _release_advice(self, pod: Pod, decision: Decision) -> None:
        """Release the reserved room of a pod that was refused, will get new advice, or got another node."""
        annotation = decision_annotation.read(pod.decision_annotation or "", pod.constraints)
        taken = decision.node_choice.nodes[:1] if isinstance(decision, Admit) else ()
        if annotation is not None and annotation.nodes and annotation.nodes[:1] != taken:
            self.world.tentative.consume(self.world.fleet, annotation.nodes[0], pod)

    def _read(self, review: Review, found: objects.Pod, *, name: str = "", uid: Uid = NO_UID) -> Pod | Decision:
        if self._unix_time is not None:
            self.world.tick(int(self._unix_time()))
        weights = self.world.policy.resources
        pod = to_pod(found, namespace=review.namespace, weights=weights, name=name, uid=uid)
        if isinstance(pod, InvalidPod):
            if pod.is_foreign and not pod.problems:
                words = "asks for no GPU, and is left as it is: {problem}"
                return NotApplicable(Reason(Code.NO_GPU, words, {"problem": pod.excess[0]}))
            return Deny(pod.reasons)
        return pod

    def _answer(
        self,
        review: Review,
        pod: Pod | None,
        decision: Decision,
        *,
        patch: Sequence[Change] = (),
        mode: Enforcement | None = None,
    ) -> Answer:
        """Return the answer, with the same texts for the log, the metrics and the audit annotations.

        Unless policy is enforced (`mode`: the enforcement at the decision) the request is allowed, and the texts are
        those of the answer under enforcement.
        """
        mode = mode or self.world.policy.enforce
        verdict = verdict_of(decision)
        if mode is not _ENFORCE:
            warnings = warnings_of(decision) if mode is _WARN else ()
            verdict = verdict.not_enforced(warnings, is_judged=decision is not NOT_ENFORCED)
        elif verdict.refusal is not None or verdict.warnings:
            self._notify(review, decision)
            if self._on_refusal is not None and verdict.outcome is _DENY and not review.dry_run:
                self._on_refusal(review, pod, verdict.reason)
        body = _encode(review.uid, verdict, patch=patch, mode=mode)
        return Answer(body, pod_record(review, pod, verdict, self.world, mode=mode))

    def _notify(self, review: Review, decision: Decision) -> None:
        """Report a decision to the pod's controller."""
        if self._notify_owner is not None and (notice := notice_of(review, decision)) is not None:
            self._notify_owner(notice)


_CREATE = Operation.CREATE  # on Python 3.11 each look at an enum's member costs 0.1 us
_ENFORCE, _WARN, _OFF = Enforcement.ENFORCE, Enforcement.WARN, Enforcement.OFF
_DENY = Outcome.DENY
_UNCHANGED: Final[Sequence[Change]] = ()
_NOT_A_CREATE = NotApplicable(Reason(Code.NOT_A_CREATE, "only creations are decided on"))


def _encode(uid: str, verdict: ReviewVerdict, *, patch: Sequence[Change], mode: Enforcement) -> bytes:
    audit: dict[str, str] = {"code": verdict.reason.code}
    if (charge := verdict.charge) is not None:
        audit["team"], audit["tier"], audit["gpus"] = charge.team, charge.tier, format_gpus(charge.gpus)
    if verdict.nodes:
        audit["nodes"] = ",".join(verdict.nodes)
    return encode_response(
        uid,
        refusal=verdict.refusal,
        patch=patch,
        warnings=verdict.warnings,
        audit_annotations=audit,
        longest=MAX_WARNING_CHARACTERS if mode is _ENFORCE else MAX_REFUSAL_CHARACTERS,
    )


def _keys(pod: objects.Pod | objects.OldPod) -> ProtectedKeys:
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    return ProtectedKeys(
        labels.get(keys.TEAM),
        labels.get(keys.TIER),
        annotations.get(keys.DECISION),
        is_queued=is_queued(pod.spec),
        minimum=annotations.get(keys.MINIMUM) if keys.TEAM in labels else None,
    )
