"""Plans of moves as data: the stable format of `-o json` and `-o yaml`."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from webhook.cli.defragment.reading import Fragmented
from webhook.core.defragment.defragment import Defragmentation
from webhook.core.defragment.free_room import FreeRoom
from webhook.core.defragment.movable_pod import WHY_IT_STAYS
from webhook.core.defragment.move_plan import WHY_NO_MOVES, Move, Moves, NotPlanned, Room, Target
from webhook.core.model.amount import ONE_GPU, Units, exact_units, format_gpus

_HOUR: Final = 3600
_DIGITS: Final = 3
_PRECISE: Final = 10
"""Hours from which on they are shown as a whole number."""


class MoveReport(msgspec.Struct, rename="camel"):
    """A pod that would be evicted, and a node that has room for its replacement now."""

    pod: str
    team: str
    tier: str
    gpus: str
    from_: Annotated[str, msgspec.Meta(description="its node")] = msgspec.field(name="from")
    to: Annotated[str, msgspec.Meta(description="a node with room; the webhook may choose another one then")]
    lost_gpu_hours: Annotated[float, msgspec.Meta(description="work since its last checkpoint, or its start")]


class PlaceReport(msgspec.Struct, rename="camel"):
    """A pod that room is made for, and the node that would have it."""

    pod: str
    team: Annotated[str, msgspec.Meta(description="empty for a pod that does not exist")]
    gpus: str
    node: str
    waits_since: Annotated[str | None, msgspec.Meta(description="null for a pod that does not exist")]


class RoomReport(msgspec.Struct, rename="camel"):
    """Room for a pod or a gang."""

    places: list[PlaceReport]
    moves: Annotated[list[MoveReport], msgspec.Meta(description="none where a node has room already")]
    lost_gpu_hours: Annotated[float, msgspec.Meta(description="of all moves")]
    waited_gpu_hours: Annotated[float | None, msgspec.Meta(description="what the pods asked for, times their wait")]
    is_worth_it: Annotated[
        bool | None, msgspec.Meta(description="whether no more work is lost than was waited for; null: nothing waits")
    ]
    is_cheapest: Annotated[
        bool, msgspec.Meta(description="false where the search was ended before it had tried all moves of one pod")
    ]


class RefusedReport(msgspec.Struct, rename="camel"):
    """Pods that wait together, and for which no moves make room."""

    pods: list[str]
    gpus: str
    cause: str
    why: str


class FreeReport(msgspec.Struct, rename="camel"):
    """How many open nodes have so many GPUs free, now and after all moves, with the waiting pods in their places."""

    resource: str
    free: int
    nodes_now: int
    nodes_after: int


class StaysReport(msgspec.Struct):
    """How many pods on nodes do not move, for one reason."""

    cause: str
    why: str
    pods: int


class DefragmentReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate defragment`."""

    rooms: Annotated[list[RoomReport], msgspec.Meta(description="each on top of the earlier ones")]
    refused: list[RefusedReport]
    more_waiting: Annotated[int, msgspec.Meta(description="further pods and gangs for which no moves were sought")]
    free: list[FreeReport]
    movable: Annotated[int, msgspec.Meta(description="pods that may move")]
    stays: list[StaysReport]
    left_out: Annotated[list[str], msgspec.Meta(description="what the user may not read")]


def report_of(found: Defragmentation, fragmented: Fragmented) -> DefragmentReport:
    """Return plans as data."""
    movement, stays = fragmented.movement, fragmented.stays
    return DefragmentReport(
        rooms=[_room(room, movement.now) for room in found.rooms],
        refused=[_refused(each) for each in found.refused],
        more_waiting=found.rest,
        free=list(_free(found.before, found.after)),
        movable=len(movement.movable),
        stays=[StaysReport(cause, WHY_IT_STAYS[cause], count) for cause, count in sorted(stays.items())],
        left_out=list(fragmented.notes),
    )


def _room(room: Room, now: int) -> RoomReport:
    waited = room.waited(now)
    has_waited = any(place.target.since for place in room.places)
    return RoomReport(
        places=[_place(place) for place in room.places],
        moves=[move_report(move) for move in room.moves],
        lost_gpu_hours=gpu_hours(room.lost_work),
        waited_gpu_hours=gpu_hours(waited) if has_waited else None,
        is_worth_it=room.lost_work <= waited if has_waited else None,
        is_cheapest=all(place.is_cheapest for place in room.places),
    )


def _place(place: Moves) -> PlaceReport:
    target = place.target
    since = datetime.fromtimestamp(target.since, UTC).isoformat().replace("+00:00", "Z") if target.since else None
    return PlaceReport(target.name, target.team, _gpus((target,)), place.node, since)


def move_report(move: Move) -> MoveReport:
    """Return a move as data."""
    victim = move.pod.victim
    return MoveReport(
        pod=f"{victim.namespace}/{victim.name}",
        team=victim.team,
        tier=move.pod.tier.value,
        gpus=format_gpus(victim.demand.gpus),
        from_=victim.node,
        to=move.to,
        lost_gpu_hours=gpu_hours(move.lost_work),
    )


def _refused(each: NotPlanned) -> RefusedReport:
    names = [target.name for target in each.targets]
    return RefusedReport(names, _gpus(each.targets), each.cause, WHY_NO_MOVES[each.cause])


def _free(before: FreeRoom, after: FreeRoom) -> Iterable[FreeReport]:
    for resource, now in before.nodes.items():
        then = after.nodes[resource]
        for free in sorted({*now, *then}, reverse=True):
            yield FreeReport(resource, free, now.get(free, 0), then.get(free, 0))


def _gpus(targets: Iterable[Target]) -> str:
    return format_gpus(exact_units(sum(target.demand.gpus for target in targets)))


def gpu_hours(work: Units) -> float:
    """Return GPU units times seconds as GPU-hours."""
    return round(float(work) / ONE_GPU / _HOUR, _DIGITS)


def hours_text(hours: float) -> str:
    """Return a number of hours for people."""
    return f"{hours:,.0f}" if hours >= _PRECISE else f"{hours:.2g}"
