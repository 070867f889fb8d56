"""Runs `fairgate defragment`: reads the world, searches moves, prints them.

What the plan of moves reads of a world: the pods that wait, those that may move, and why the others stay.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import click
import msgspec

from webhook.cli.defragment.command import Options
from webhook.cli.explain.reclaim import ClusterDetails, DetailsRequest, Evictions, node_holds_of, read_details
from webhook.cli.grid import Grid, Line, number, print_error
from webhook.cli.options import columns, is_colored
from webhook.cli.output import to_data
from webhook.cli.screen import Screen, progress
from webhook.cli.world_source import (
    Objects,
    Source,
    WorldError,
    WorldObjects,
    choose_policy,
    describe_world,
    origin_of,
    read_objects,
    world_of,
)
from webhook.core.defragment.candidates import (
    WHY_IT_STAYS,
    WHY_NO_MOVES,
    FreeRoom,
    Move,
    Moves,
    NotPlanned,
    Room,
    Stays,
    Target,
    movable_pods,
)
from webhook.core.defragment.targets import (
    Defragmentation,
    Movement,
    grow,
    imagined,
    make_room,
    target_in_line,
    target_of_scheduler,
)
from webhook.core.model.amounts import (
    ONE_GPU,
    Namespace,
    ResourceName,
    Uid,
    Units,
    exact_units,
    format_gpus,
    parse_amount,
    plural,
    plural_gpus,
)
from webhook.core.model.decision import as_asked
from webhook.core.model.pod import NO_UID, Pod
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.server.settings import LiveCluster

_NOT_IN_FILES: Final = "a world file has no Jobs: none was looked at"


@dataclass(frozen=True, slots=True)
class Fragmented:
    """The input of a plan, how many pods on nodes stay for each reason, and what could not be read."""

    world: World
    targets: tuple[Target, ...]
    movement: Movement
    stays: Mapping[Stays, int]
    notes: tuple[str, ...]


def read_fragmented(
    found: WorldObjects, policy: Policy, details: ClusterDetails, *, name: str, now: int, per_workload: int
) -> Fragmented:
    """Return what a plan is made from. Raises WorldError where not all nodes and pods may be listed."""
    if not found.coverage.has_names:
        raise WorldError(f"moves are planned from all nodes and pods: {'; '.join(found.coverage.notes())}")
    evictions = Evictions.of(found.objects, world_of(found, policy, name=name), details, ())
    movement, stays = read_movement(found.objects, evictions, now=now, per_workload=per_workload)
    world, held = evictions.world, evictions.held
    holds = node_holds_of(found.objects)
    served = {each.uid for hold in holds for each in hold.beneficiaries}
    served |= {Uid(place.key) for hold in holds for place in hold.places}
    targets: list[Target | None] = [
        target_in_line(each, world, held=held) for each in world.waiting.all() if each.uid not in served
    ]
    for written, gpu_pod in _pods(found.objects, evictions):
        if gpu_pod.pod.node is None and gpu_pod.uid not in served:
            template = _template(written, gpu_pod, world)
            targets.append(None if template is None else target_of_scheduler(gpu_pod, template, world, held=held))
    return Fragmented(world, tuple(filter(None, targets)), movement, stays, details.notes)


def read_movement(
    objects: Objects, evictions: Evictions, *, now: int, per_workload: int
) -> tuple[Movement, Mapping[Stays, int]]:
    """Return what moves are possible in a world, and how many pods on nodes stay for each reason."""
    world, index = evictions.world, evictions.reclaim_index
    written = {gpu_pod.uid: found for found, gpu_pod in _pods(objects, evictions)}
    gpu_pods = [each for each in index.on_nodes() if each.uid in written and not each.pod.is_terminating]
    found = movable_pods(
        gpu_pods, lambda each: _template(written[each.uid], each, world), index, world, now=now, held=evictions.held
    )
    policy = world.policy
    movement = Movement(
        fleet=world.fleet,
        movable=found.pods,
        now=now,
        left=found.left,
        weights=policy.resources,
        per_workload=per_workload,
        levels=policy.topology.levels,
        held=evictions.held,
    )
    return movement, found.stays


def details_of(source: Source) -> ClusterDetails:
    """Return the disruption budgets and the failure budgets of the cluster, and what could not be read."""
    if not isinstance(source, LiveCluster):
        return ClusterDetails(notes=(_NOT_IN_FILES,))
    from webhook.cluster.api.client import ClusterError  # noqa: PLC0415 - slow to import, and files need none of it

    try:
        return read_details(source.kubeconfig, DetailsRequest(None, "", OWN_NAMESPACE, reads_failures=True))
    except ClusterError as error:
        raise WorldError(str(error)) from error


def _pods(objects: Objects, evictions: Evictions) -> Iterator[tuple[Mapping[str, Any], ReclaimPod]]:
    """Yield the pods that hold GPUs or wait for some, as they are written and as reclaim reads them."""
    residents = {(pod.namespace, pod.name): pod.uid for pod in evictions.world.pods()}
    for each in objects:
        if each.get("kind") == "Pod":
            metadata = mapping(each.get("metadata"))
            key = Namespace(text(metadata.get("namespace")) or "default"), text(metadata.get("name"))
            gpu_pod = evictions.reclaim_index.get(residents.get(key, NO_UID))
            if gpu_pod is not None:
                yield each, gpu_pod


def _template(written: Mapping[str, Any], gpu_pod: ReclaimPod, world: World) -> Pod | None:
    """Return a pod as its controller would create it now; None where it cannot be read."""
    found = read_template(written, namespace=gpu_pod.namespace, world=world)
    return as_asked(found.pod, world.policy) if isinstance(found, Template) else None


# Plans of moves as data: the stable format of `-o json` and `-o yaml`.


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
