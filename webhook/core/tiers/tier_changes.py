"""Promotion, demotion, minimums first.

Pods that share devices by a ResourceClaim: who shares what another pod borrows borrows, too.

A guaranteed pod keeps its devices, so beside one the borrowed devices could not be taken back.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import GpuModel, Uid, Units, WorkloadName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, NotApplicable
from webhook.core.model.pod import NO_LABELS, Pod, Resident
from webhook.core.model.policy import Team
from webhook.core.model.policy_addons import IdleAction
from webhook.core.model.reasons import Code, Reason, Statement
from webhook.core.quota.charges import Alive, InFlightCharge, LedgerDecision
from webhook.core.quota.limits import has_guaranteed_room
from webhook.core.quota.usage import TeamUsage, UsageEntry
from webhook.core.world.minimums import Minimums
from webhook.core.world.world import World


class Sharer(NamedTuple):
    """A pod that shares a claim whose GPUs are borrowed."""

    pod: Resident
    claim: ClaimKey


def borrowed_claim(pod: Pod | Resident, world: World) -> ClaimKey | None:
    """Return a claim of a pod that another pod is charged for as borrowed; None where there is none."""
    for key in world.claims.shared_by(pod.uid, pod.namespace, pod.claims):
        charged = world.claims.users.charged_pod(key)
        charge = None if charged is None or charged == pod.uid else world.charge_of(charged)
        if charge is not None and charge.tier is Tier.PREEMPTIBLE:
            return key
    return None


def guaranteed_sharers(usage: TeamUsage, world: World, *, demoted: Collection[Uid]) -> Iterator[Sharer]:
    """Yield the pods with a guaranteed label that share what pods of the team borrow, the demoted ones among them."""
    users = world.claims.users
    if users.is_empty:
        return
    found = set(demoted)
    for uid, entry in usage.entries():
        pod = world.pod(uid)
        if pod is None or not pod.claims or (entry.charge.tier is Tier.GUARANTEED and uid not in demoted):
            continue
        for key in world.claims.shared_by(uid, pod.namespace, pod.claims):
            for other in users.of(key) if users.charged_pod(key) == uid else ():
                sharer = world.pod(other)
                if other not in found and sharer is not None and _can_be_demoted(sharer, world):
                    found.add(other)
                    yield Sharer(sharer, key)


def _can_be_demoted(pod: Resident, world: World) -> bool:
    is_seen = isinstance(world.evidence(pod.uid), Alive)
    return is_seen and pod.tier is Tier.GUARANTEED and not pod.is_terminating


# Which guaranteed pods become preemptible since they do not use their GPUs while other pods wait.


def idle_to_demote(team: Team, book: TeamUsage, world: World) -> set[Uid]:
    """Return a team's idle guaranteed pods, if policy demotes them and any pod waits; the evictor says what is idle.

    A pod that was demoted stays preemptible until it uses its GPUs: others may wait again at any moment.
    """
    if IdleAction.DEMOTE not in world.policy.on_idle(team.name):
        return set()
    held = ((uid, book.get(uid)) for uid in world.stages.idle)
    found = {uid for uid, entry in held if entry is not None and entry.charge.tier is Tier.GUARANTEED}
    return found if found and is_any_waiting(world) else set()


def is_any_waiting(world: World) -> bool:
    """Whether a pod is in the queue, or was admitted and has no node."""
    return bool(len(world.waiting)) or any(book.waiting for book in world.usage_by_team().values())


# The order in which a team's pods have its guaranteed share: replicas of minimums first, those beyond them last.
#
# A team's pods that belong to a minimum take the place of pods of the same team that are beyond another one. Pods of
# workloads without a minimum neither give way nor displace any: a minimum costs others nothing.


class Rank(IntEnum):
    """Where a pod stands in its team: part of its workload's minimum, of none, or beyond it."""

    MINIMUM = 0
    OTHER = 1
    SURPLUS = 2


Ranks = Mapping[Uid, Rank]
"""The ranks of pods other than OTHER."""

NO_RANKS: Final[Ranks] = {}


def ranks_of(book: TeamUsage, world: World) -> Ranks:
    """Return the ranks of a team's pods."""
    minimums = world.minimums
    if not minimums.workloads():
        return {}
    workloads = dict.fromkeys(minimums.workload_of(uid) for uid, _ in book.entries())
    return ranks_within(filter(None, workloads), minimums, world.pod)


def ranks_within(
    workloads: Iterable[WorkloadName], minimums: Minimums, pod_of: Callable[[Uid], Resident | None]
) -> Ranks:
    """Return the ranks of the pods of workloads.

    Of a workload the oldest are its minimum, whatever their tiers, so that a change of tier changes no rank.
    """
    ranks: dict[Uid, Rank] = {}
    for workload in workloads:
        if minimum := minimums.for_tiers(workload):
            pods = [pod for uid in minimums.pods(workload) if (pod := pod_of(uid)) is not None]
            for number, pod in enumerate(sorted(pods, key=_age)):
                ranks[pod.uid] = Rank.MINIMUM if number < minimum else Rank.SURPLUS
    return ranks


def rank_of(pod: Resident, ranks: Ranks) -> tuple[bool, int, int, str, str, str]:
    """Return where a pod stands: those that requested never to borrow first, then by rank, then by age."""
    rank = ranks.get(pod.uid, Rank.OTHER) if ranks else Rank.OTHER
    return (pod.requested_tier is not Tier.GUARANTEED, rank, pod.created, pod.namespace, pod.name, pod.uid)


def gives_way(pod: Resident, ranks: Ranks) -> bool:
    """Whether a guaranteed pod gives way to a pod of a minimum: it did not request never to borrow."""
    return ranks.get(pod.uid) is Rank.SURPLUS and pod.requested_tier is not Tier.GUARANTEED and not pod.claims


def _age(pod: Resident) -> tuple[bool, int, str, str]:
    return (pod.is_terminating, pod.created, pod.name, pod.uid)


# Tier changes: which borrowing pods become guaranteed, and which guaranteed pods no longer fit.
#
# Both directions use one order: pods that requested never to borrow first, then replicas of minimums, others by age,
# and replicas beyond minimums last. In that order, each pod that still fits into the share is
# guaranteed; a pod that is too large is skipped and blocks no later one, for it runs all the same. A second look finds
# nothing to do.


_NO_LONGER: Final = LedgerDecision(NotApplicable(Reason(Code.BORROWS, "the pod is no longer to be promoted")), None)

NOTICED_SECONDS: Final = 600
"""A pod whose eviction is announced is not promoted until so long after the announced time: no share that gets free,
and no minimum, takes back what others wait for. The evictor withdraws an announcement that it does not carry out."""

Held = tuple[Resident, UsageEntry]
"""A pod and its charge."""


class Sums(NamedTuple):
    """A team's guaranteed share and how much of it other pods use; the same for a model that has a share."""

    share: int
    taken: Units
    model_share: int | None = None
    model_taken: Units = 0


@dataclass(frozen=True, slots=True)
class TierChange:
    """A pod whose tier changes: `charge` is its charge from then on, `sums` what it was compared with.

    `claim` is the name of a ResourceClaim, if it borrows since that is borrowed. `is_displaced`: it is beyond its
    workload's minimum, and gives way to another one's. `is_idle`: it does not use its GPUs.
    """

    pod: Resident
    charge: Charge
    sums: Sums
    claim: str = ""
    is_idle: bool = False
    is_displaced: bool = False

    @property
    def message(self) -> Statement:
        """What the pod's owner reads: what happened and why."""
        if self.is_displaced:
            words = (
                "now preemptible: it is beyond its workload's minimum, and another workload's minimum takes its "
                "{gpus:GPUs} in {share}; it borrows, and may be evicted"
            )
            return Statement(words, {"gpus": self.charge.gpus, "share": self._share})
        if self.claim:
            words = "now preemptible: it shares ResourceClaim {claim}, whose GPUs are borrowed; it may be evicted"
            return Statement(words, {"claim": self.claim})
        if self.is_idle:
            words = (
                "now preemptible: its {gpus:GPUs} have not been used, and other pods wait; it may be evicted, and is "
                "guaranteed again once it uses them and there is room in {share}"
            )
            return Statement(words, {"gpus": self.charge.gpus, "share": self._share})
        words = (
            "now guaranteed: there is room for its {gpus:GPUs} in {share}; it no longer borrows"
            if self.charge.tier is Tier.GUARANTEED
            else "now preemptible: there is no room for its {gpus:GPUs} in {share}; it borrows, and may be evicted"
        )
        return Statement(words, {"gpus": self.charge.gpus, "share": self._share})

    @property
    def _share(self) -> Statement:
        share, taken, model_share, model_taken = self.sums
        facts: dict[str, object] = {"team": self.charge.team, "share": share, "taken": taken}
        words = "team {team}'s guaranteed share of {share:gpus}, {taken:gpus} taken"
        if model_share is not None:
            words += " (of {model}: {modelShare:gpus}, {modelTaken:gpus} taken)"
            facts |= {"model": self.charge.model, "modelShare": model_share, "modelTaken": model_taken}
        return Statement(words, facts)


@dataclass(slots=True)
class ShareTaken:
    """What is taken of a team's guaranteed share, and of its shares per GPU model."""

    team: Team
    taken: Units = 0
    by_model: dict[GpuModel, Units] = field(default_factory=dict)

    def fits(self, charge: Charge) -> bool:
        """Whether a charge still fits."""
        if self.taken + charge.gpus > self.team.gpus.guaranteed:
            return False
        share = self.team.models.get(charge.model) if charge.model is not None else None
        return share is None or self._of(charge.model) + charge.gpus <= share.guaranteed

    def take(self, charge: Charge, *, sign: int = 1) -> None:
        """Add a charge, or (sign -1) remove it."""
        self.taken += sign * charge.gpus
        if charge.model is not None:
            self.by_model[charge.model] = self._of(charge.model) + sign * charge.gpus

    def sums(self, charge: Charge) -> Sums:
        """Return what a charge is compared with."""
        of_model = self.team.models.get(charge.model) if charge.model is not None else None
        if of_model is None:
            return Sums(self.team.gpus.guaranteed, self.taken)
        return Sums(self.team.gpus.guaranteed, self.taken, of_model.guaranteed, self._of(charge.model))

    def _of(self, model: GpuModel | None) -> Units:
        return self.by_model.get(model, 0) if model is not None else 0


def tier_changes(team: Team, world: World) -> tuple[TierChange, ...]:
    """Return the changes that make a team's tiers match its share; demotions first, since they make room.

    Only pods that the webhook labeled and the watch has shown are changed. Terminating pods are left alone: they still
    count for promotions, and not for demotions. Pods that bypassed the webhook count against the share too, but demote
    no other pods.
    """
    book = world.usage(team.name)
    idle, is_over = idle_to_demote(team, book, world), _may_be_over(team, book)
    ranks = ranks_of(book, world) if idle or is_over or book.preemptible else NO_RANKS
    demotions = _demotions(team, book, world, ranks, idle) if idle or is_over or ranks else []
    demotions += _sharers(team, book, world, demoted=[change.pod.uid for change in demotions])
    room = ShareTaken(team, book.guaranteed, {model: book.guaranteed_model(model) for model in team.models})
    for change in demotions:
        room.take(change.charge, sign=-1)
    has_room = room.taken < team.gpus.guaranteed and book.preemptible > 0
    return (*demotions, *(_promotions(room, book, world, ranks) if has_room else ()))


def all_tier_changes(world: World) -> Iterator[TierChange]:
    """Yield the changes that are due in a world, team by team, while the caller makes each of them."""
    for team in world.policy.teams:
        for change in tier_changes(team, world):
            if change.charge.tier is not Tier.GUARANTEED or promotion(change, world).flight is not None:
                yield change


def inside_share(team: Team, world: World) -> tuple[TierChange, ...]:
    """Return the borrowing pods that a team's guaranteed share has room for, in the order of their promotion.

    They do not borrow from others. They started ahead of pods that wait, or are about to be promoted.
    """
    book = world.usage(team.name)
    if not book.preemptible or book.guaranteed >= team.gpus.guaranteed:
        return ()
    room = ShareTaken(team, book.guaranteed, {model: book.guaranteed_model(model) for model in team.models})
    return tuple(_promotions(room, book, world, ranks_of(book, world), with_all=True))


def promotion(change: TierChange, world: World) -> LedgerDecision:
    """Check a promotion again at the moment when it is charged: other pods may have been admitted meanwhile."""
    pod, charge = world.pod(change.pod.uid), world.charge_of(change.pod.uid)
    team = world.policy.team(change.charge.team)
    if pod is None or charge is None or team is None or not may_rise(pod, world):
        return _NO_LONGER
    is_same = charge.tier is Tier.PREEMPTIBLE and charge._replace(tier=Tier.GUARANTEED) == change.charge
    if not is_same or not has_guaranteed_room(charge.gpus, team, world.usage(team.name), charge.model):
        return _NO_LONGER
    why = Reason(Code.WITHIN_SHARE, "promoted in team {team}", {"team": team.name})
    seen = pod._replace(packed=NO_LABELS)  # the watch shows it, and its labels count by that
    return LedgerDecision(NotApplicable(why, change.charge), InFlightCharge(seen, change.charge, None))


def under_way(uid: Uid, world: World) -> TierChange | None:
    """Return a promotion that is charged already, such as an earlier leader left it; None where it is over."""
    pod, charge = world.pod(uid), world.charge_of(uid)
    team = None if charge is None else world.policy.team(charge.team)
    if pod is None or charge is None or team is None or charge.tier is not Tier.GUARANTEED:
        return None
    book = world.usage(team.name)
    room = ShareTaken(team, book.guaranteed, {model: book.guaranteed_model(model) for model in team.models})
    room.take(charge, sign=-1)
    return TierChange(pod, charge, room.sums(charge))


def _may_be_over(team: Team, book: TeamUsage) -> bool:
    return book.guaranteed > team.gpus.guaranteed or any(
        book.guaranteed_model(model) > share.guaranteed for model, share in team.models.items()
    )


def _demotions(team: Team, book: TeamUsage, world: World, ranks: Ranks, idle: Set[Uid]) -> list[TierChange]:
    """Return the guaranteed pods that do not fit after those that stay and those that rise: those beyond minimums last.

    Those that are `idle` are demoted whether they fit or not. Pods of minimums that rise by it are promoted in the same
    pass. They get what is left without pods that leave or bypassed the webhook, which demote no other pods.
    """
    kept, others = ShareTaken(team), list[Charge]()
    stays, unused, beyond = list[Held](), list[Held](), list[Held]()
    for uid, entry in book.entries():
        pod = world.pod(uid)
        if entry.charge.tier is not Tier.GUARANTEED or entry.is_unlabeled:
            others += [entry.charge] if entry.is_unlabeled else []
        elif entry.is_reserved or pod is None or pod.tier is not Tier.GUARANTEED:
            kept.take(entry.charge)  # admitted or promoted, and not seen so yet
        elif pod.is_terminating:
            others.append(entry.charge)
        elif pod.uid in idle:
            unused.append((pod, entry))
        else:
            (beyond if gives_way(pod, ranks) else stays).append((pod, entry))
    found = [_demoted(pod, entry, kept) for pod, entry in in_order(stays, ranks) if not _is_kept(entry, kept)]
    found += [replace(_demoted(pod, entry, kept), is_idle=True) for pod, entry in in_order(unused, ranks)]
    rising = in_order(_rising(book, world, ranks), ranks) if beyond else []
    for charge in others if rising else ():
        kept.take(charge)
    rises = [entry for _, entry in rising if _is_kept(entry, kept)]
    for charge in others if rising and not rises else ():
        kept.take(charge, sign=-1)
    last = [_demoted(pod, entry, kept) for pod, entry in in_order(beyond, ranks) if not _is_kept(entry, kept)]
    return found + [replace(change, is_displaced=bool(rises)) for change in reversed(last)]  # the newest first


def _is_kept(entry: UsageEntry, kept: ShareTaken) -> bool:
    """Take a charge if it fits; return whether it did."""
    fits = kept.fits(entry.charge)
    if fits:
        kept.take(entry.charge)
    return fits


def _demoted(pod: Resident, entry: UsageEntry, kept: ShareTaken) -> TierChange:
    return TierChange(pod, entry.charge._replace(tier=Tier.PREEMPTIBLE), kept.sums(entry.charge))


def _rising(book: TeamUsage, world: World, ranks: Ranks) -> Iterator[Held]:
    """Yield the borrowing pods of minimums."""
    for uid, rank in ranks.items():
        entry, pod = book.get(uid), world.pod(uid)
        if rank is Rank.MINIMUM and entry is not None and pod is not None and _may_be_promoted(pod, entry, world):
            yield pod, entry


def _sharers(team: Team, book: TeamUsage, world: World, *, demoted: Collection[Uid]) -> list[TierChange]:
    found = []
    for pod, key in guaranteed_sharers(book, world, demoted=demoted):
        charge = world.charge_of(pod.uid) or Charge(team.name, Tier.GUARANTEED, 0, None, pod.user)
        sums = Sums(team.gpus.guaranteed, book.guaranteed)
        found.append(TierChange(pod, charge._replace(tier=Tier.PREEMPTIBLE), sums, key.name))
    return found


def _promotions(
    room: ShareTaken, book: TeamUsage, world: World, ranks: Ranks, *, with_all: bool = False
) -> list[TierChange]:
    movable = []
    for uid, entry in book.entries():
        if entry.charge.tier is not Tier.PREEMPTIBLE or not room.fits(entry.charge):
            continue
        pod = world.pod(uid)
        if pod is not None and _may_be_promoted(pod, entry, world, with_all=with_all):
            movable.append((pod, entry))
    found = []
    for pod, entry in in_order(movable, ranks):
        if room.fits(entry.charge):
            found.append(TierChange(pod, entry.charge._replace(tier=Tier.GUARANTEED), room.sums(entry.charge)))
            room.take(entry.charge)
    return found


def _may_be_promoted(pod: Resident, entry: UsageEntry, world: World, *, with_all: bool = False) -> bool:
    """Whether a pod borrows and may be promoted now; `with_all`: also one that started ahead of pods that wait."""
    if entry.charge.tier is not Tier.PREEMPTIBLE or entry.is_reserved or not may_rise(pod, world):
        return False
    return with_all or not (pod.is_backfill and _is_in_the_way(pod, world))


def may_rise(pod: Resident, world: World) -> bool:
    """Whether a pod that borrows is promoted once its team's share has room for it."""
    if pod.tier is not Tier.PREEMPTIBLE or pod.requested_tier is Tier.PREEMPTIBLE or pod.is_terminating:
        return False
    if pod.idle_since and IdleAction.DEMOTE in world.policy.on_idle(pod.team_label):
        return False
    if pod.notice_at + NOTICED_SECONDS > world.now and pod.notice_at:
        return False
    return not pod.claims or borrowed_claim(pod, world) is None


def _is_in_the_way(pod: Resident, world: World) -> bool:
    """Whether pods ahead of a back-filled one wait for room, in line or for reclaim to make it on the pod's node."""
    if world.waiting.wants(pod.node):
        return True
    return pod.node is not None and world.fleet.is_overbooked(pod.node, pod.demand)


def in_order(pods: Iterable[Held], ranks: Ranks = NO_RANKS) -> list[Held]:
    """Return the pods in the order in which they have the guaranteed share."""
    return sorted(pods, key=lambda held: rank_of(held[0], ranks))
