"""Keeps tiers true in the cluster: carries out what core.retier finds, one pod and one patch at a time."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from webhook.cluster.client import ApiConnection
from webhook.cluster.errors import ApiError, ClusterError
from webhook.cluster.relabel import Relabelled, relabel
from webhook.core.names import TeamName, Uid
from webhook.core.retier import Retier, is_still_due, retier
from webhook.core.tier import Tier
from webhook.core.world import World
from webhook.kube.events import Event, EventReason, EventType, ObjectRef
from webhook.observe.logs import Logs

REST_SECONDS: Final = 10.0
"""How long a pod is left alone after its patch failed."""

AT_ONCE: Final = 50
"""Changes of one team that are carried out before it is looked at anew: in half a second enough pods may have ended."""


class Shares(Protocol):
    """Keeps the guaranteed shares."""

    async def promote(self, change: Retier) -> bool:
        """Take guaranteed room for a pod that borrowed; False where that is no longer right."""
        ...

    def take_back(self, uid: Uid) -> None:
        """Give the room back: the pod's label will not follow."""
        ...


class MemoryShares:
    """The guaranteed shares of one process: the world's own books."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def promote(self, change: Retier) -> bool:
        """Take the room at once, if it is still there."""
        is_due = is_still_due(change, self._world)
        if is_due:
            self._world.promote(change.pod.uid)
        return is_due

    def take_back(self, uid: Uid) -> None:
        """Charge the pod as its label says."""
        self._world.take_back_promotion(uid)


class Teller(Protocol):
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
        teller: Teller,
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
        self._promoting: dict[Uid, Retier] = {}  # room is taken, the label is not written for sure
        self._written: dict[Uid, Tier] = {}  # the label is written, and not seen yet
        self._resting: dict[Uid, float] = {}  # failed; until when it is left alone

    async def settle(self) -> None:
        """Bring every team's labels in line with its share, as the world is now."""
        self._forget_what_is_over()
        for change in list(self._promoting.values()):
            await self._write(change)
        policy = self._world.policy
        for team in policy.teams:
            due = [change for change in retier(team, self._world) if not self._is_in_hand(change.pod.uid)]
            for change in due[:AT_ONCE]:
                if self._world.policy is not policy:
                    return  # found by a policy that is no longer in force
                await self._carry_out(change)
            await asyncio.sleep(0)  # a large team takes milliseconds, and decisions wait for them

    async def _carry_out(self, change: Retier) -> None:
        if change.charge.tier is Tier.GUARANTEED:
            if not await self._shares.promote(change):
                return
            self._promoting[change.pod.uid] = change
        await self._write(change)

    async def _write(self, change: Retier) -> None:
        uid, tier = change.pod.uid, change.charge.tier
        if uid in self._resting:
            return
        try:
            outcome = await relabel(self._connection, change.pod, tier, is_leading=self._is_leading)
        except ClusterError as error:
            self._resting[uid] = asyncio.get_running_loop().time() + REST_SECONDS
            self._logs.event.warning("tier not changed", **_subject(change), why=str(error))
            if isinstance(error, ApiError):  # a clear no; without an answer the label may have been written
                self._give_up(uid)
            return
        if outcome is Relabelled.GONE:
            self._give_up(uid)
            return
        self._promoting.pop(uid, None)
        self._written[uid] = tier
        self._tell(change)

    def _give_up(self, uid: Uid) -> None:
        if self._promoting.pop(uid, None) is not None:
            self._shares.take_back(uid)

    def _tell(self, change: Retier) -> None:
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
        self._written = {uid: tier for uid, tier in self._written.items() if self._is_unseen(uid, tier)}

    def _is_unseen(self, uid: Uid, tier: Tier) -> bool:
        pod = self._world.pod(uid)
        return pod is not None and pod.tier is not tier


def _subject(change: Retier) -> dict[str, str]:
    pod = change.pod
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "team": change.charge.team,
        "tier": change.charge.tier,
    }
