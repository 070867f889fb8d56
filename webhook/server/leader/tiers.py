"""Keeps tiers true in the cluster: carries out what core.tiers.tier_changes finds, one pod and one patch at a time."""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, Protocol

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.cluster.writes.relabel import Relabelled, relabel
from webhook.core.model.decision import Decision, NotApplicable
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.tiers.tier_changes import TierChange, promotion, tier_changes, under_way
from webhook.core.world.world import World
from webhook.kube.objects.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs

REST_SECONDS: Final = 10.0
"""How long a pod is left alone after its patch failed."""

CHARGE_SECONDS: Final = 5.0
"""How long taking the room for a promotion may need; it is a write of milliseconds."""

AT_ONCE: Final = 50
"""Changes of one team that are carried out before it is looked at anew: in half a second enough pods may have ended."""


class Shares(Protocol):
    """Keeps the guaranteed shares, for all replicas together."""

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Judge a promotion on the world as it is then, and charge what is right."""
        ...

    def withdraw(self, team: TeamName, uid: Uid) -> None:
        """Give room back: the pod's label will not follow."""
        ...

    def promotions(self) -> Iterable[InFlightCharge]:
        """List the promotions that are charged and whose labels are not written for sure, whoever charged them."""
        ...


class EventRecorder(Protocol):
    """Tells people what happened."""

    def tell(self, event: Event) -> None:
        """Have an event written; returns at once."""
        ...


class Tiers:
    """Promotes and demotes. `changes` counts what was done, by team and new tier."""

    def __init__(
        self,
        world: World,
        connection: ApiConnection,
        *,
        shares: Shares,
        teller: EventRecorder,
        logs: Logs,
        is_leading: Callable[[], bool],
    ) -> None:
        self.changes: dict[tuple[TeamName, Tier], int] = {}
        self._world = world
        self._connection = connection
        self._shares = shares
        self._teller = teller
        self._logs = logs
        self._is_leading = is_leading
        self._promoting: dict[Uid, TierChange] = {}  # room is taken by us, and the label is not written for sure
        self._written: dict[Uid, Tier] = {}  # the label is written, and not seen yet
        self._resting: dict[Uid, float] = {}  # failed; until when it is left alone

    async def settle(self) -> None:
        """Bring every team's labels in line with its share, as the world is now."""
        self._forget_what_is_over()
        for change in self._left_over():
            await self._write(change)
        policy = self._world.policy
        for team in policy.teams:
            due = [change for change in tier_changes(team, self._world) if not self._is_in_hand(change.pod.uid)]
            for change in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return  # found by a policy that is no longer in force
                await self._carry_out(change)
            await asyncio.sleep(0)  # a large team takes milliseconds, and decisions wait for them

    async def _carry_out(self, change: TierChange) -> None:
        if change.charge.tier is Tier.GUARANTEED:
            if not await self._is_charged(change):
                return
            self._promoting[change.pod.uid] = change
        await self._write(change)

    async def _is_charged(self, change: TierChange) -> bool:
        deadline = asyncio.get_running_loop().time() + CHARGE_SECONDS
        decision = await self._shares.commit(
            lambda: promotion(change, self._world), deadline=deadline, is_gone=lambda: not self._is_leading()
        )
        return isinstance(decision, NotApplicable) and decision.charge is not None

    def _left_over(self) -> list[TierChange]:
        """List what is charged and not written: our own tries that failed, and what an earlier leader left."""
        found = []
        for flight in self._shares.promotions():
            uid = flight.pod.uid
            change = self._promoting.get(uid) or under_way(uid, self._world)
            if change is not None and uid not in self._written:
                self._promoting[uid] = change
                found.append(change)
        return found

    async def _write(self, change: TierChange) -> None:
        uid, tier = change.pod.uid, change.charge.tier
        if uid in self._resting:
            return
        try:
            outcome = await relabel(self._connection, change.pod, change.charge, is_leading=self._is_leading)
        except ClusterError as error:
            self._resting[uid] = asyncio.get_running_loop().time() + REST_SECONDS
            self._logs.event.warning("tier not changed", **_subject(change), why=str(error))
            if _is_clear_no(error):
                self._give_up(change)
            return
        if outcome is Relabelled.GONE:
            self._give_up(change)
            return
        self._promoting.pop(uid, None)
        self._written[uid] = tier
        self._tell(change)

    def _give_up(self, change: TierChange) -> None:
        if self._promoting.pop(change.pod.uid, None) is not None:
            self._shares.withdraw(change.charge.team, change.pod.uid)

    def _tell(self, change: TierChange) -> None:
        pod, tier = change.pod, change.charge.tier
        key = (change.charge.team, tier)
        self.changes[key] = self.changes.get(key, 0) + 1
        self._logs.event.info("tier changed", **_subject(change), message=change.text)
        about = ObjectRef("Pod", pod.namespace, pod.name, pod.uid)
        if tier is Tier.GUARANTEED:
            self._teller.tell(Event(about, EventType.NORMAL, EventReason.PROMOTED, "Promote", change.text))
        else:
            self._teller.tell(Event(about, EventType.WARNING, EventReason.DEMOTED, "Demote", change.text))

    def _is_in_hand(self, uid: Uid) -> bool:
        return uid in self._written or uid in self._promoting or uid in self._resting

    def _forget_what_is_over(self) -> None:
        now = asyncio.get_running_loop().time()
        self._resting = {uid: until for uid, until in self._resting.items() if until > now}
        self._promoting = {uid: c for uid, c in self._promoting.items() if self._is_unseen(uid, c.charge.tier)}
        self._written = {uid: tier for uid, tier in self._written.items() if self._is_unseen(uid, tier)}

    def _is_unseen(self, uid: Uid, tier: Tier) -> bool:
        pod = self._world.pod(uid)
        return pod is not None and pod.tier is not tier


def _is_clear_no(error: ClusterError) -> bool:
    """Tell whether nothing was written for sure; without an answer, or where the server broke, it may have been."""
    return isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR


def _subject(change: TierChange) -> dict[str, str]:
    pod = change.pod
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "team": change.charge.team,
        "tier": change.charge.tier,
    }
