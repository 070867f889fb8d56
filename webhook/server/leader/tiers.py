"""Changes tier labels in the cluster: one patch for each change that core.tiers.tier_changes finds."""

import asyncio
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.writes.rate_limit import TokenBucket
from webhook.cluster.writes.relabel import RelabelResult, relabel
from webhook.core.model.decision import NotApplicable
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.tier import Tier
from webhook.core.tiers.tier_changes import TierChange, promotion, tier_changes, under_way
from webhook.kube.objects.events import EventReason
from webhook.observe.logs import pod_fields
from webhook.server.leader.leader_context import LeaderContext

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
