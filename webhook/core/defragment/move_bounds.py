"""The policy's bounds on a plan of moves, and the moves of the last hour, which count against them."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.defragment.move_plan import Room
from webhook.core.model.amount import UNLIMITED
from webhook.core.model.defragment_rules import DefragmentRules

HOUR_SECONDS: Final = 3600


class Bound(StrEnum):
    """What keeps a plan from being carried out now."""

    MOVES_PER_HOUR = "MovesPerHour"
    LOST_PER_GPU = "LostPerGpu"
    NOT_WORTH_IT = "NotWorthIt"


WHY_NOT_NOW: Final = {
    Bound.MOVES_PER_HOUR: "it takes more moves than policy still allows in this hour",
    Bound.LOST_PER_GPU: "more work would be done again than policy allows for so many GPUs",
    Bound.NOT_WORTH_IT: "more work would be done again than was waited for so far",
}
"""The same for people."""


class PastMove(NamedTuple):
    """A move that was made: `at` is in seconds of Unix time, `workload` the UID of the pod's controller."""

    at: int
    workload: str


def recent(moves: Iterable[PastMove], *, now: int) -> list[PastMove]:
    """Return the moves of the last hour; those that other clocks date in the future count."""
    return [each for each in moves if each.at > now - HOUR_SECONDS]


def moved_pods(moves: Iterable[PastMove], *, now: int) -> Counter[str]:
    """Return how many pods of each workload were moved within the last hour."""
    return Counter(each.workload for each in recent(moves, now=now))


def moves_left(moves: Iterable[PastMove], rules: DefragmentRules, *, now: int) -> int:
    """Return how many moves policy still allows now."""
    return max(0, rules.moves_per_hour - len(recent(moves, now=now)))


def bound_on(room: Room, rules: DefragmentRules, *, now: int, left: int) -> Bound | None:
    """Return what keeps a plan from being carried out now; None where nothing does.

    `left` is how many moves are allowed now. Room that no pod waits for need not have been waited for.
    """
    gained = sum(place.target.demand.gpus for place in room.places)
    limit = rules.lost_seconds_per_gpu
    if len(room.moves) > left:
        return Bound.MOVES_PER_HOUR
    if limit is not UNLIMITED and room.lost_work > limit * gained:
        return Bound.LOST_PER_GPU
    has_waited = any(place.target.since for place in room.places)
    return Bound.NOT_WORTH_IT if has_waited and room.lost_work > room.waited(now) else None
