"""Pods that are charged for room that reclaim takes back: so many of each team at a time, until they have a node."""

from typing import Final

from webhook.core.model.names import TeamName, Uid
from webhook.core.world.world import World

MOST: Final = 64
"""Pods of one team that wait for such room. Their ledger, which may be one for a whole department, lists each of them
until then, and the evictor has room for few more of a team under way at a time (UNDER_WAY in
webhook.core.reclaim.reclaim)."""

SECONDS: Final = 30
"""After so long a pod no longer counts: some can never be bound, and must not keep the others of their team in line."""


class ReclaimPace:
    """The pods that wait for room that reclaim takes back, by team. Times are in Unix seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._released: dict[TeamName, dict[Uid, int]] = {}

    def note(self, team: TeamName, uid: Uid, *, now: int) -> None:
        """Note that a pod is charged for such room."""
        self._released.setdefault(team, {})[uid] = now

    def are_enough(self, team: TeamName, *, now: int) -> bool:
        """Whether the next pods of a team wait in line until one of these has a node, or its time is over."""
        released = self._released.get(team, {})
        if len(released) >= MOST:
            released = {uid: at for uid, at in released.items() if now < at + SECONDS and self._has_no_node(uid)}
            self._released[team] = released
        return len(released) >= MOST

    def _has_no_node(self, uid: Uid) -> bool:
        """Whether a pod is charged and not bound yet; one that went back to the line is not charged."""
        pod = self._world.pod(uid)
        return pod is not None and pod.node is None
