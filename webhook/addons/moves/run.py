"""Runs `fairgate defragment`: reads the world, searches moves, prints them."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import click
import msgspec

from webhook.addons.moves.candidates import (
    WHY_IT_STAYS,
    WHY_NO_MOVES,
    FreeRoom,
    Moves,
    NotPlanned,
    Room,
    Target,
)
from webhook.addons.moves.command import Options
from webhook.addons.moves.reading import Fragmented, details_of, gpu_hours, move_report, read_fragmented
from webhook.addons.moves.targets import (
    Defragmentation,
    grow,
    imagined,
    make_room,
)
from webhook.cli.explain.outcome import MoveReport, hours_text
from webhook.cli.grid import Grid, Line, number, print_error
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import (
    WorldError,
    choose_policy,
    describe_world,
    origin_of,
    read_objects,
)
from webhook.core.model.amounts import (
    ResourceName,
    exact_units,
    format_gpus,
    parse_amount,
    plural,
    plural_gpus,
)
from webhook.core.model.policy import Policy

# Plans of moves as data: the stable format of `-o json` and `-o yaml`.


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


class MovingReport(msgspec.Struct):
    """A move that the evictor makes now: the pod that leaves or left, and the node that keeps its place."""

    pod: str
    team: str
    to: str


class DefragmentReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate defragment`."""

    rooms: Annotated[list[RoomReport], msgspec.Meta(description="each on top of the earlier ones")]
    refused: list[RefusedReport]
    more_waiting: Annotated[int, msgspec.Meta(description="further pods and gangs for which no moves were sought")]
    free: list[FreeReport]
    movable: Annotated[int, msgspec.Meta(description="pods that may move")]
    stays: list[StaysReport]
    under_way: Annotated[list[MovingReport], msgspec.Meta(description="moves that the evictor makes now")]
    by_policy: Annotated[str, msgspec.Meta(description="when the evictor moves pods, and how many; empty: never")]
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
        under_way=[
            MovingReport(place.name, place.team, node.name)
            for node in fragmented.world.fleet.nodes()
            for place in node.kept
            if place.replaces
        ],
        by_policy=_by_policy(fragmented.world.policy),
        left_out=list(fragmented.notes),
    )


def _by_policy(policy: Policy) -> str:
    rules = policy.defragment
    when = [*(["for pods that wait"] if rules.on_demand else []), *([f"in {rules.window}"] if rules.window else [])]
    if not (when and policy.is_enforced):
        return ""
    return f"{' and '.join(when)}, at most {plural(rules.moves_per_hour, 'move')} an hour"


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


# Plans of moves as text for terminals.


_NAMES: Final = 3
"""Pods of a gang that are named."""


def to_table(report: DefragmentReport, *, source: str, width: int, is_colored: bool) -> str:
    """Return the plans, what is free before and after, and why pods stay, with the world's source below."""
    screen = Screen(width=width, is_colored=is_colored)
    moving = [room for room in report.rooms if room.moves]
    for room in moving:
        screen.show(Line(_headline(room), style="bold"), _moves(room), Line(_worth(room)), "")
    for each in report.refused:
        screen.show(Line(_refusal(each)))
    if report.more_waiting:
        noun = "pod or gang" if report.more_waiting == 1 else "pods or gangs"
        screen.show(f"no moves were sought for {report.more_waiting:,} more {noun}")
    if not (moving or report.refused):
        screen.show("no pod waits that moves of others could make room for")
    screen.show(*([""] if report.refused or not moving else []), *_free_grids(report), "")
    screen.show(*(Line(line, style="dim") for line in _stays(report)))
    screen.show(*(Line(f"{move.pod} is being moved to {move.to}", style="yellow") for move in report.under_way))
    by_hand = "nothing was moved: evict the pods of a plan, and their controllers create them again"
    screen.show(f"the evictor moves pods {report.by_policy}" if report.by_policy else by_hand, Line(source))
    return screen.text


def _headline(room: RoomReport) -> str:
    nodes = Counter(place.node for place in room.places)
    where = ", ".join(nodes)
    moves = plural(len(room.moves), "move")
    return f"{_names([place.pod for place in room.places])}: {moves} would make room on {where}"


def _moves(room: RoomReport) -> Grid:
    grid = Grid("pod", "team", "tier", number("GPUs"), "from", "to", number("GPU-hours done again", goes=1))
    for move in room.moves:
        cells = (move.pod, move.team, move.tier, move.gpus, move.from_, move.to, hours_text(move.lost_gpu_hours))
        grid.add_row(*map(Line, cells))
    return grid


def _worth(room: RoomReport) -> str:
    cost = f"{hours_text(room.lost_gpu_hours)} GPU-hours of work would be done again"
    rest = "" if room.is_cheapest else "; the search was ended before it had tried everything"
    if room.waited_gpu_hours is None:
        return f"{cost}{rest}"
    verdict = "worth it" if room.is_worth_it else "not worth it yet"
    return f"{cost}, {hours_text(room.waited_gpu_hours)} GPU-hours were waited for: {verdict}{rest}"


def _refusal(each: RefusedReport) -> str:
    return f"{_names(each.pods)}: no moves for {plural_gpus(parse_amount(each.gpus))}: {each.why}"


def _names(pods: list[str]) -> str:
    shown = ", ".join(pods[:_NAMES])
    return shown if len(pods) <= _NAMES else f"{shown} and {len(pods) - _NAMES} more"


def _free_grids(report: DefragmentReport) -> Iterator[Grid | str]:
    for resource in dict.fromkeys(each.resource for each in report.free):
        grid = Grid(number(f"{resource} free on a node"), number("nodes now"), number("after the moves"))
        for each in report.free:
            if each.resource == resource:
                grid.add_row(Line(str(each.free)), Line(str(each.nodes_now)), Line(str(each.nodes_after)))
        yield grid


def _stays(report: DefragmentReport) -> Iterator[str]:
    yield f"{plural(report.movable, 'pod')} may move"
    for each in sorted(report.stays, key=lambda each: -each.pods):
        yield f"{plural(each.pods, 'pod')} may not: {each.why}"


# Runs `fairgate defragment`.


def run(options: Options) -> None:
    """Show the moves."""
    now, origin = int(time.time()), origin_of(options.source)
    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        found = read_objects(options.source, namespaces=options.namespaces, has_room=False)
        details = details_of(options.source)
        fragmented = read_fragmented(
            found, policy, details, name=origin.name, now=now, per_workload=options.per_workload
        )
    with progress("Planning"):
        plans = _plans(options, fragmented)
    report = report_of(plans, fragmented)
    if options.layout.is_data:
        click.echo(to_data(report, options.layout), nl=False)
        return
    source = describe_world(origin, fragmented.world)
    click.echo(to_table(report, source=source, width=columns(), is_colored=is_colored()), nl=False)
    for note in fragmented.notes:
        print_error(note)


def _plans(options: Options, fragmented: Fragmented) -> Defragmentation:
    movement = fragmented.movement
    if not options.is_largest and options.gpus is None:
        return make_room(fragmented.targets, movement)
    resource = ResourceName(options.resource) if options.resource else _most_frequent(fragmented)
    if resource not in movement.weights or not movement.fleet.offers(resource):
        offered = ", ".join(name for name in sorted(movement.weights) if movement.fleet.offers(name)) or "none"
        raise WorldError(f"no node offers GPUs of resource {resource}; offered: {offered}")
    if options.gpus is None:
        return grow(resource, movement)
    return make_room((imagined(resource, options.gpus, movement),), movement)


def _most_frequent(fragmented: Fragmented) -> ResourceName:
    """Return the resource of which the nodes offer the most pieces."""
    fleet, weights = fragmented.movement.fleet, fragmented.movement.weights
    offered = {name: sum(node.allocatable.get(name, 0) for node in fleet.nodes()) for name in sorted(weights)}
    return max(offered, key=lambda name: offered[name])
