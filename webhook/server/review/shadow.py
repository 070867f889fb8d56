"""A gate that only looks on: pods are judged and charged as if policy were enforced, and all of them pass."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.core.admission.admission import admit
from webhook.core.model import decision_annotation as marks
from webhook.core.model.decision import Admit, Charge, Decision, Deny, NotApplicable
from webhook.core.model.labels import pack
from webhook.core.model.names import NodeName
from webhook.core.model.pod import NO_LABELS, Pod, Requester, Resident
from webhook.core.model.reason import Code, Reason
from webhook.core.model.tier import Tier
from webhook.core.model.topology import asked_labels
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.world.world import World

if TYPE_CHECKING:
    from webhook.server.review.reviewer import Ledger

NOT_ENFORCED: Final = NotApplicable(Reason(Code.NOT_ENFORCED, "policy is not enforced: nothing is changed"))
_ONLY_COUNTED: Final = Reason(Code.NOT_ENFORCED, "policy is not enforced: only counted")


class Caller(NamedTuple):
    """Who asks, and until when he listens; what he only tries out is not charged."""

    requester: Requester
    dry_run: bool
    deadline: float
    is_gone: Callable[[], bool]


class Shadow:
    """Judges pods that come in whatever the judgement is; `onlooker` keeps those that came before."""

    def __init__(self, world: World, ledger: "Ledger", shadow_labels: ShadowLabels) -> None:
        self._world = world
        self._ledger = ledger
        self._onlooker = shadow_labels

    async def judge(self, pod: Pod, caller: Caller) -> Decision:
        """Tell what would become of a pod, and charge what it takes all the same; a ledger that fails holds up nobody.

        What would be refused is charged, too, as borrowed: the pod comes.
        """
        told: Decision = NOT_ENFORCED

        def judgement() -> LedgerDecision:
            nonlocal told
            self._onlooker.settle((self._world.tenancy(pod.namespace).team_name,))
            told = admit(pod, caller.requester, self._world)
            charge = self._charge(pod, told)
            passed = told if isinstance(told, NotApplicable) else NotApplicable(_ONLY_COUNTED, charge)
            return LedgerDecision(passed, None if charge is None else self._flight(pod, charge))

        if caller.dry_run:
            judgement()
        else:
            await self._ledger.commit(judgement, deadline=caller.deadline, is_gone=caller.is_gone)
        return told

    def _charge(self, pod: Pod, told: Decision) -> Charge | None:
        if isinstance(told, Admit | NotApplicable):
            return told.charge
        return Charge(self._world.tenancy(pod.namespace).team_name, Tier.PREEMPTIBLE, pod.demand.gpus)

    def _flight(self, pod: Pod, charge: Charge) -> InFlightCharge:
        flight = flight_of(pod, charge)
        supposed = self._onlooker.supposed(flight.pod, team=charge.team, tier=charge.tier)
        return flight._replace(pod=supposed)


def flight_of(pod: Pod, charge: Charge, *, nodes: tuple[NodeName, ...] = ()) -> InFlightCharge:
    """Describe a pod that is allowed, with what it is charged; it takes its room on the first of the nodes.

    Of its labels those are told by which its like are to be spread: they come in bursts, and count before they are
    seen.
    """
    resident = Resident(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        demand=pod.demand,
        node=pod.node_name,
        owner=pod.owner,
        team_label=pod.team_label,
        tier_label=pod.tier_label,
        user=charge.user,
        claims=pod.claims,
        shares_by=pod.shares_by,
        slices=pod.slices,
        admitted=mark.admitted if pod.claims and (mark := marks.read(pod.mark or "")) is not None else None,
        packed=pack(asked_labels(pod.topology, pod.labels)) if pod.topology else NO_LABELS,
        anti_affinity_rules=pod.anti_affinity_rules if pod.topology else (),
    )
    return InFlightCharge(resident, charge, pod.node_name or (nodes[0] if nodes else None))


def warnings_of(decision: Decision) -> tuple[str, ...]:
    """Tell users what would become of their pod."""
    if isinstance(decision, Deny):
        return tuple(f"Fairgate would refuse this pod ({code}): {text}" for code, text in decision.reasons)
    if not isinstance(decision, Admit):
        return ()
    tier, (code, text) = decision.charge.tier, decision.reason
    return (f"Fairgate would make this pod {tier} ({code}): {text}", *(each.text for each in decision.warnings))
