"""Tier changes: which borrowing pods become guaranteed, and which guaranteed pods no longer fit.

Both directions use one order: pods that requested never to borrow first, then replicas of minimums, others by age, and
replicas beyond minimums last (minimum_first.py). In that order, each pod that still fits into the share is guaranteed;
a pod that is too large is skipped and blocks no later one, for it runs all the same. A second look finds nothing to do.
"""

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge, NotApplicable
from webhook.core.model.idle_rules import IdleAction
from webhook.core.model.names import GpuModel, Uid
from webhook.core.model.pod import NO_LABELS, Resident
from webhook.core.model.policy import Team
from webhook.core.model.reason import Code, Reason
from webhook.core.model.statement import Statement
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.quota.limits import has_guaranteed_room
from webhook.core.quota.usage import TeamUsage, UsageEntry
from webhook.core.tiers.borrowed_claims import borrowed_claim, guaranteed_sharers
from webhook.core.tiers.idle_demotions import idle_to_demote
from webhook.core.tiers.minimum_first import NO_RANKS, Rank, Ranks, gives_way, rank_of, ranks_of
from webhook.core.world.world import World

_GUARANTEED: Final = Tier.GUARANTEED  # 5,000 pods of a team take 0.65 ms with these names, 1.6 ms with `Tier.…` on 3.11
_PREEMPTIBLE: Final = Tier.PREEMPTIBLE
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
    if pod is None or charge is None or team is None or not _may_rise(pod, world):
        return _NO_LONGER
    is_same = charge.tier is _PREEMPTIBLE and charge._replace(tier=_GUARANTEED) == change.charge
    if not is_same or not has_guaranteed_room(charge.gpus, team, world.usage(team.name), charge.model):
        return _NO_LONGER
    why = Reason(Code.WITHIN_SHARE, "promoted in team {team}", {"team": team.name})
    seen = pod._replace(packed=NO_LABELS)  # the watch shows it, and its labels count by that
    return LedgerDecision(NotApplicable(why, change.charge), InFlightCharge(seen, change.charge, None))


def under_way(uid: Uid, world: World) -> TierChange | None:
    """Return a promotion that is charged already, such as an earlier leader left it; None where it is over."""
    pod, charge = world.pod(uid), world.charge_of(uid)
    team = None if charge is None else world.policy.team(charge.team)
    if pod is None or charge is None or team is None or charge.tier is not _GUARANTEED:
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
        if entry.charge.tier is not _GUARANTEED or entry.is_unlabeled:
            others += [entry.charge] if entry.is_unlabeled else []
        elif entry.is_reserved or pod is None or pod.tier is not _GUARANTEED:
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
    return TierChange(pod, entry.charge._replace(tier=_PREEMPTIBLE), kept.sums(entry.charge))


def _rising(book: TeamUsage, world: World, ranks: Ranks) -> Iterator[Held]:
    """Yield the borrowing pods of minimums."""
    for uid, rank in ranks.items():
        entry, pod = book.get(uid), world.pod(uid)
        if rank is Rank.MINIMUM and entry is not None and pod is not None and _may_be_promoted(pod, entry, world):
            yield pod, entry


def _sharers(team: Team, book: TeamUsage, world: World, *, demoted: Collection[Uid]) -> list[TierChange]:
    found = []
    for pod, key in guaranteed_sharers(book, world, demoted=demoted):
        charge = world.charge_of(pod.uid) or Charge(team.name, _GUARANTEED, 0, None, pod.user)
        sums = Sums(team.gpus.guaranteed, book.guaranteed)
        found.append(TierChange(pod, charge._replace(tier=_PREEMPTIBLE), sums, key.name))
    return found


def _promotions(
    room: ShareTaken, book: TeamUsage, world: World, ranks: Ranks, *, with_all: bool = False
) -> list[TierChange]:
    movable = []
    for uid, entry in book.entries():
        if entry.charge.tier is not _PREEMPTIBLE or not room.fits(entry.charge):
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
    if entry.charge.tier is not _PREEMPTIBLE or entry.is_reserved or not _may_rise(pod, world):
        return False
    return with_all or not (pod.is_backfill and _is_in_the_way(pod, world))


def _may_rise(pod: Resident, world: World) -> bool:
    if pod.tier is not _PREEMPTIBLE or pod.requested_tier is _PREEMPTIBLE or pod.is_terminating:
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
