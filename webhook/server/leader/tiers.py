"""Labels, adoption, bypass.

Passes watched pods to the world; detects those that bypassed the webhook, and those that were deleted by force.
"""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiError, ClusterError
from webhook.cluster.writes.events import TokenBucket
from webhook.cluster.writes.pod_writes import RelabelResult, relabel
from webhook.core.model.amounts import TeamName, Uid, plural_gpus
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import NotApplicable
from webhook.core.model.pod import Resident
from webhook.core.model.policy import NO_TEAM
from webhook.core.quota.charges import InFlightCharge, Unseen
from webhook.core.tiers.shadow_labels import Adoption, ShadowLabels, adoptions, are_due
from webhook.core.tiers.tier_changes import TierChange, promotion, tier_changes, under_way
from webhook.core.world.world import World, lingering
from webhook.kube.objects.events import EventReason
from webhook.observe.logs import pod_fields
from webhook.server.leader.registration_loop import LeaderContext


class BypassDetector:
    """Stores pods in the world, and reports each one that bypassed the webhook, once.

    Pods of exempt namespaces may bypass it. Pods in the ledger did not: Fairgate counts some pods without patching
    them, and these have no label either. While the policy is not enforced, no pod is reported. Reports begin with
    `start`, after the first lists.
    """

    def __init__(
        self,
        world: World,
        shadow_labels: ShadowLabels,
        *,
        report: Callable[[Resident], None],
        linger: Callable[[InFlightCharge], None],
    ) -> None:
        self._world = world
        self._shadow_labels = shadow_labels
        self._report = report
        self._linger = linger
        self._is_started = False

    def set_pod(self, pod: Resident) -> None:
        """Store a pod."""
        if self._is_started and pod.team_label is None and self._is_new(pod) and self._is_bypass(pod):
            self._report(pod)
        self._shadow_labels.set_pod(pod)

    def remove_pod(self, uid: Uid) -> None:
        """Remove a pod."""
        self._shadow_labels.remove_pod(uid)

    def delete_pod(self, uid: Uid, *, is_watched: bool) -> None:
        """Remove a pod that was deleted before its end was seen: GPUs that its node may still use stay charged.

        `is_watched` as in `lingering`.
        """
        charge = lingering(uid, self._world, is_watched=is_watched)
        self.remove_pod(uid)
        if charge is not None:
            self._world.assume(charge)
            self._linger(charge)

    def start(self) -> Iterable[Resident]:
        """Start to report, and return the existing pods without a label."""
        self._is_started = True
        return [pod for pod in self._world.pods() if pod.team_label is None and self._is_bypass(pod)]

    def _is_new(self, pod: Resident) -> bool:
        return isinstance(self._world.evidence(pod.uid), Unseen) and not self._world.is_assumed(pod.uid)

    def _is_bypass(self, pod: Resident) -> bool:
        is_counted = self._world.policy.is_enforced and bool(pod.demand.gpus)
        return is_counted and not self._world.tenancy(pod.namespace).is_exempt


# Writes Events on pods that hold GPUs and bypassed the webhook: it was down, or they are a kubelet's static pods.


class BypassReporter:
    """Reports each such pod once. A new leader reports it again, with the same Event, which is then not a new one.

    Pods that are in the ledger when they are first seen passed the webhook to be counted only, and have no labels.
    """

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._reported: set[Uid] = set()

    def report_new(self) -> None:
        """Report the pods that appeared since the last call."""
        found = set(self._world.without_decision())
        for uid in found - self._reported:
            pod = self._world.pod(uid)
            if pod is not None and not self._world.tenancy(pod.namespace).is_exempt and not self._world.is_assumed(uid):
                self._report(pod)
        self._reported = found

    def skip_existing(self) -> None:
        """Never report the current pods: they were created while the policy was not enforced."""
        self._reported = {pod.uid for pod in self._world.pods()}

    def _report(self, pod: Resident) -> None:
        team = self._world.tenancy(pod.namespace).team_name
        text = (
            f"holds {plural_gpus(pod.demand.gpus)} without a decision of Fairgate; they are charged to team {team}. "
            "A pod of a DaemonSet, with a nodeName or of another scheduler is never labeled; any other pod bypassed "
            "Fairgate's webhook"
        )
        self._context.report(pod, EventReason.BYPASSED_ADMISSION, text)


# Changes tier labels in the cluster: one patch for each change that core.tiers.tier_changes finds.


REST_SECONDS: Final = 10.0
"""How long a pod is skipped after a failed patch; twice as long after each further one …"""

LONGEST_REST_SECONDS: Final = 640.0
"""… up to this."""

CHARGE_SECONDS: Final = 5.0
"""Timeout of charging a promotion; it is a write of milliseconds."""

AT_ONCE: Final = 50
"""Changes of one team before they are computed again: they take half a second, in which pods may have ended."""

DISPLACED_AT_ONCE: Final = 50
DISPLACED_SECONDS: Final = 6.0
"""How many pods of a team give way to minimums of the same team at once, and after how long one more does."""


class Rests:
    """The pods that are skipped for a while, by loop time: one that cannot be written holds up no other."""

    def __init__(self) -> None:
        self._until: dict[Uid, tuple[float, int]] = {}  # and how often in a row it failed

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._until and self._until[uid][0] > asyncio.get_running_loop().time()

    def tidy(self) -> None:
        """Forget the pods that were not tried again for long."""
        oldest = asyncio.get_running_loop().time() - LONGEST_REST_SECONDS
        self._until = {uid: rest for uid, rest in self._until.items() if rest[0] > oldest}

    def succeeded(self, uid: Uid) -> None:
        """Skip a pod until the watch shows the write."""
        self._until[uid] = asyncio.get_running_loop().time() + REST_SECONDS, 0

    def failed(self, uid: Uid) -> None:
        """Skip a pod after a failed patch."""
        failures = self._until.get(uid, (0.0, 0))[1]
        seconds = min(LONGEST_REST_SECONDS, REST_SECONDS * 2 ** min(failures, 10))
        self._until[uid] = asyncio.get_running_loop().time() + seconds, failures + 1


class TierUpdater:
    """Promotes and demotes pods. `changes` counts both, by team and new tier."""

    def __init__(self, context: LeaderContext) -> None:
        self.changes: dict[tuple[TeamName, Tier], int] = {}
        self._context = context
        self._world = context.world
        self._promoting: dict[Uid, TierChange] = {}  # charged by this replica, and the label may not be written yet
        self._written: dict[Uid, Tier] = {}  # the label is written, and the watch has not shown it yet
        self._rests = Rests()
        self._displaced: dict[TeamName, TokenBucket] = {}

    async def reconcile(self) -> None:
        """Change the labels of every team's pods to match its share in the current world."""
        self._drop_finished()
        for change in self._unfinished_promotions():
            await self._write(change)
        policy = self._world.policy
        for team in policy.teams:
            due = [change for change in tier_changes(team, self._world) if not self._is_in_progress(change.pod.uid)]
            for change in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return  # computed from a policy that is no longer in force
                if not change.is_displaced or self._may_displace(team.name):
                    await self._apply(change)
            await asyncio.sleep(0)  # a large team takes milliseconds, and decisions wait for them

    def _may_displace(self, team: TeamName) -> bool:
        now = asyncio.get_running_loop().time()
        full = TokenBucket.full(DISPLACED_AT_ONCE, DISPLACED_SECONDS, now=now)
        return self._displaced.setdefault(team, full).take(now)

    async def _apply(self, change: TierChange) -> None:
        if change.charge.tier is Tier.GUARANTEED:
            if not await self._is_charged(change):
                return
            self._promoting[change.pod.uid] = change
        await self._write(change)

    async def _is_charged(self, change: TierChange) -> bool:
        deadline = asyncio.get_running_loop().time() + CHARGE_SECONDS
        decision = await self._context.ledger.commit(
            lambda: promotion(change, self._world), deadline=deadline, is_gone=lambda: not self._context.is_leading()
        )
        return isinstance(decision, NotApplicable) and decision.charge is not None

    def _unfinished_promotions(self) -> list[TierChange]:
        """Return promotions that are charged and not written: own failed attempts, and those of an earlier leader."""
        found = []
        for flight in self._context.ledger.promotions():
            uid = flight.pod.uid
            change = self._promoting.get(uid) or under_way(uid, self._world)
            if change is not None and uid not in self._written:
                self._promoting[uid] = change
                found.append(change)
        return found

    async def _write(self, change: TierChange) -> None:
        context, uid, tier = self._context, change.pod.uid, change.charge.tier
        if uid in self._rests:
            return
        try:
            outcome = await relabel(context.connection, change.pod, change.charge, is_leading=context.is_leading)
        except ClusterError as error:
            self._rests.failed(uid)
            self._context.logs.event.warning("tier not changed", **_subject(change), why=str(error))
            if _is_certain_failure(error):
                self._give_up(change)
            return
        if outcome is RelabelResult.GONE:
            self._give_up(change)
            return
        self._promoting.pop(uid, None)
        self._written[uid] = tier
        self._report(change)

    def _give_up(self, change: TierChange) -> None:
        if self._promoting.pop(change.pod.uid, None) is not None:
            self._context.ledger.withdraw(change.charge.team, change.pod.uid)

    def _report(self, change: TierChange) -> None:
        pod, tier = change.pod, change.charge.tier
        key = (change.charge.team, tier)
        self.changes[key] = self.changes.get(key, 0) + 1
        self._context.logs.event.info("tier changed", **_subject(change), message=change.message.text)
        reason = EventReason.PROMOTED if tier is Tier.GUARANTEED else EventReason.DEMOTED
        self._context.report(pod, reason, change.message.text)

    def _is_in_progress(self, uid: Uid) -> bool:
        return uid in self._written or uid in self._promoting or uid in self._rests

    def _drop_finished(self) -> None:
        self._rests.tidy()
        self._promoting = {uid: c for uid, c in self._promoting.items() if self._is_pending(uid, c.charge.tier)}
        self._written = {uid: tier for uid, tier in self._written.items() if self._is_pending(uid, tier)}

    def _is_pending(self, uid: Uid, tier: Tier) -> bool:
        pod = self._world.pod(uid)
        return pod is not None and pod.tier is not tier


def _is_certain_failure(error: ClusterError) -> bool:
    """Return whether certainly nothing was written; it may have been after a server error or without a response."""
    return isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR


def _subject(change: TierChange) -> dict[str, str]:
    return {**pod_fields(change.pod), "team": change.charge.team, "tier": change.charge.tier}


# Labels pods that run without a decision, as core.tiers.adoption finds them, with one patch each.


class Adopter:
    """Adopts pods. A patched pod is skipped for REST_SECONDS, by when the watch shows it if the patch succeeded."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._rests = Rests()

    async def adopt_new(self) -> None:
        """Adopt new pods, at most AT_ONCE of each team."""
        self._rests.tidy()
        policy = self._world.policy
        for team in (*policy.teams, NO_TEAM) if are_due(self._world) else ():
            due = [each for each in adoptions(team, self._world) if each.pod.uid not in self._rests]
            for adoption in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return
                await self._adopt(adoption)

    async def _adopt(self, adoption: Adoption) -> None:
        context, (pod, charge) = self._context, adoption
        fields = {**pod_fields(pod), "team": charge.team, "tier": charge.tier}
        try:
            outcome = await relabel(context.connection, pod, charge, is_leading=context.is_leading)
        except ClusterError as error:
            self._rests.failed(pod.uid)
            context.logs.event.warning("pod not adopted", **fields, why=str(error))
            return
        self._rests.succeeded(pod.uid)
        if outcome is RelabelResult.GONE:
            return
        context.logs.event.info("pod adopted", **fields)
        text = f"ran without a decision of Fairgate; now it is charged to team {charge.team} as {charge.tier}"
        context.report(pod, EventReason.ADOPTED, text)
