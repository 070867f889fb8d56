"""Reviews of pods while policy is not enforced: pods are judged and charged as if it were, and all are allowed."""

from collections.abc import Callable
from typing import Final, NamedTuple

from webhook.core.admission.admission import decide
from webhook.core.admission.assessment import Assessment, assess
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable, Queue
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.quota.charged_pod import flight_of
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World
from webhook.server.review.ledger_protocol import Ledger

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
        return (f"Fairgate would let this pod wait in line ({decision.reason.code}): {decision.reason.text}",)
    if not isinstance(decision, Admit):
        return ()
    tier, why = decision.charge.tier, decision.reason
    return (f"Fairgate would make this pod {tier} ({why.code}): {why.text}", *(each.text for each in decision.warnings))
