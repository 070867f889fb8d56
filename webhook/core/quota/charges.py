"""What a pod is charged, charges in flight, ResourceQuotas.

The rules of one team's ledger object: the charges in flight, which no watched pod proves yet.

The object lists the charges that were allowed and whose pods were not seen in the cluster yet. A team's usage is the
sum of the watched pods and of the charges in flight whose pods were not seen. That sum is exact only if the watch is
not older than the last charge removed from the object. So the object states up to which resourceVersion charges were
folded into the pods, and a replica may commit only if its watch has reached that version.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model import decision
from webhook.core.model.amounts import CPU, PODS, Namespace, NodeName, ResourceName, Uid
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.decision import Charge, Decision
from webhook.core.model.demand import Demand
from webhook.core.model.pod import NO_LABELS, Pod, Resident
from webhook.core.model.reasons import Code, Reason
from webhook.core.model.topology import asked_labels
from webhook.core.quota.usage import NO_MOVES, Moves


class InFlightCharge(NamedTuple):
    """An allowed pod: its charge, and the node whose room it takes where one was chosen.

    Or a running pod that is promoted: charged as guaranteed while its label still says preemptible. Or a pod deleted by
    force: with `lingers`, the seconds for which its node may still run it. Or room that is kept for a pod of a gang,
    for at most `lingers` seconds: `until` is when that ends, in seconds of Unix time. Or, with `takes_back`, a pod that
    keeps its gate until reclaim has taken back its room.
    """

    pod: Resident
    charge: Charge
    node: NodeName | None
    lingers: int = 0
    until: int = 0
    takes_back: bool = False

    @property
    def is_left(self) -> bool:
        """Whether it is what a pod deleted by force left."""
        return bool(self.lingers) and not self.until

    @property
    def is_promotion(self) -> bool:
        """Whether it promotes a running pod, and ends with the change of its label, not with the pod's appearance."""
        return self.charge.tier is Tier.GUARANTEED and self.pod.tier_label == Tier.PREEMPTIBLE


class LedgerDecision(NamedTuple):
    """A decision on the present world; `flight` is its charge, None where it charges nothing.

    `replaces` is a listed charge that ends with the write that makes this one, and only with it.
    """

    decision: Decision
    flight: InFlightCharge | None
    replaces: Uid | None = None


@dataclass(frozen=True, slots=True)
class Unseen:
    """The pod was never seen: it may still come."""


class Alive(NamedTuple):
    """The pod was seen; every watch that reached this resourceVersion has seen it, too."""

    version: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The pod was seen to end, or can never come: it no longer counts."""


Evidence = Unseen | Alive | Ended
UNSEEN: Final = Unseen()
ENDED: Final = Ended()


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The content of one ledger object. `turn` counts writes: a write without other changes counts, too.

    `moves` say for which teams it takes charges.
    """

    flights: Mapping[Uid, InFlightCharge] = field(default_factory=dict)
    folded: int = 0
    turn: int = 0
    moves: Moves = NO_MOVES

    def is_current_at(self, reached: int) -> bool:
        """Whether a watch of the pods up to this resourceVersion contains all pods that were folded."""
        return reached >= self.folded

    def turned(
        self, evidence: Callable[[Uid], Evidence], *, added: Mapping[Uid, InFlightCharge], withdrawn: Collection[Uid]
    ) -> "LedgerRecord":
        """Return the next state: without the charges that ended or were withdrawn, with the new ones.

        A pod that is alive raises `folded`, since from now on only the watches count it. A pod that ended does not: a
        watch that has not seen it yet rightly counts nothing.
        """
        flights, folded = dict(self.flights), self.folded
        for uid in self.flights:
            match evidence(uid):
                case Alive(version):
                    folded = max(folded, version)
                    del flights[uid]
                case Ended():
                    del flights[uid]
                case Unseen() if uid in withdrawn:
                    del flights[uid]
        flights.update(added)
        return LedgerRecord(flights, folded, self.turn + 1, self.moves)


EMPTY_LEDGER_RECORD: Final = LedgerRecord()
"""The state of a team that never charged anything."""


# The record of a pod that was allowed and is not seen in the cluster yet: what it is charged and where it goes.


def flight_of(pod: Pod, charge: Charge, *, nodes: tuple[NodeName, ...] = (), is_watched: bool = True) -> InFlightCharge:
    """Return the charge in flight of an allowed pod; it takes its room on the first of the nodes.

    `is_watched`: a watch will show the pod with all of its labels. Until then only those labels are kept by which its
    own rules select: replicas of one workload come in bursts, and are counted before they are seen. Where no watch
    shows it, all of its labels are kept.
    """
    if not is_watched:
        labels = pack(pod.labels)
    else:
        labels = pack(asked_labels(pod.topology, pod.labels)) if pod.topology else NO_LABELS
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
        admitted=annotation.admitted
        if pod.claims and (annotation := decision.read(pod.decision_annotation or "")) is not None
        else None,
        packed=labels,
        anti_affinity_rules=pod.anti_affinity_rules if pod.topology else (),
        gang=None if pod.gang is None else pod.gang.id,
        replica=pod.replica,
    )
    return InFlightCharge(resident, charge, pod.node_name or (nodes[0] if nodes else None))


# ResourceQuotas: which of them would make kube-apiserver reject a new pod after Fairgate has charged it.
#
# Such a pod never appears, and nothing in the API reports that. So a pod known to be rejected is not charged.


_MILLI: Final = 1000


class Quota(NamedTuple):
    """One quota for all pods of its namespace: the allowed and used amounts by line."""

    name: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]


class QuotaIndex:
    """The quotas of all namespaces, as last seen."""

    def __init__(self) -> None:
        self._quotas: dict[Namespace, dict[str, Quota]] = defaultdict(dict)

    def set(self, namespace: Namespace, quota: Quota) -> None:
        """Add or update a quota."""
        self._quotas[namespace][quota.name] = quota

    def remove(self, namespace: Namespace, name: str) -> None:
        """Remove a quota."""
        if (known := self._quotas.get(namespace)) is not None:
            known.pop(name, None)
            if not known:
                del self._quotas[namespace]

    def of(self, namespace: Namespace) -> Collection[Quota]:
        """Return the quotas of a namespace."""
        return self._quotas.get(namespace, {}).values()


def exceeded(demand: Demand, quotas: Collection[Quota]) -> Reason | None:
    """Return the first quota without room for one more pod, in the wording of kube-apiserver; None if all have room.

    Only a pod's requests and the number of pods are compared. Limits are not known here.
    """
    if not quotas:
        return None
    requests = dict(_requests(demand))
    for quota in sorted(quotas, key=lambda each: each.name):
        over = [
            name
            for name, hard in sorted(quota.hard.items())
            if requests.get(name, 0) > 0 and name in quota.used and quota.used[name] + requests[name] > hard
        ]
        if over:
            words = "exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
            parts = {"requested": requests, "used": quota.used, "limited": quota.hard}
            amounts = {what: ",".join(f"{name}={_quantity(of[name])}" for name in over) for what, of in parts.items()}
            return Reason(Code.RESOURCE_QUOTA_EXCEEDED, words, {"quota": quota.name, **amounts})
    return None


def _requests(demand: Demand) -> Iterator[tuple[str, Fraction]]:
    """Return a pod's requests under the names of a quota; extended resources have one form only."""
    yield "pods", Fraction(1)
    yield "count/pods", Fraction(1)
    for name, amount in (demand.own or demand).requests:
        if name == PODS:
            continue
        exact = Fraction(amount, _MILLI) if name == CPU else Fraction(amount)
        yield f"requests.{name}", exact
        if _is_native(name):
            yield name, exact


def _is_native(name: ResourceName) -> bool:
    return "/" not in name


def _quantity(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount * _MILLI):g}m"
