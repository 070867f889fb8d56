"""What a plan of moves reads of a world: the pods that wait, those that may move, and why the others stay. Pure.

And what `explain` asks: which moves of other pods would make room for one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.addons.moves.candidates import Move, Room, Stays, Target, movable_pods
from webhook.addons.moves.targets import Movement, make_room, target_in_line, target_of_scheduler, target_to_come
from webhook.cli.explain.outcome import MoveReport, RoomByMoves
from webhook.cli.explain.reclaim import ClusterDetails, DetailsRequest, Evictions, node_holds_of, read_details
from webhook.cli.explain.subjects import Subject
from webhook.cli.world_source import Objects, Source, WorldError, WorldObjects, world_of
from webhook.core.explain.explanation import Explanation
from webhook.core.explain.policy_replay import requester_of
from webhook.core.model.amounts import ONE_GPU, Namespace, Uid, Units, format_gpus
from webhook.core.model.decision import Admit, Queue, as_asked
from webhook.core.model.pod import NO_UID, Pod
from webhook.core.model.policy import Policy
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.world.world import World
from webhook.kube.admission.templates import Template, read_template
from webhook.kube.kinds.model import mapping, text
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.server.settings import LiveCluster

_HOUR: Final = 3600
_DIGITS: Final = 3
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


def gpu_hours(work: Units) -> float:
    """Return GPU units times seconds as GPU-hours."""
    return round(float(work) / ONE_GPU / _HOUR, _DIGITS)


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


# Moves of other pods that would make room for an explained one.


MAX_OBJECTS: Final = 20_000
"""Objects of a world up to which moves are sought: each pod is read again, which takes 0.1 ms. `fairgate defragment`
reads more."""


class OtherPods:
    """The other pods of a world, read once, when moves are first sought."""

    def __init__(self, objects: Objects, now: int) -> None:
        self._objects = objects
        self._now = now
        self._movement: Movement | None = None

    def room_for(self, subject: Subject, explanation: Explanation, evictions: Evictions) -> RoomByMoves | None:
        """Return moves that would make room for a pod that waits, or would wait, for room; None where it needs none."""
        if len(self._objects) > MAX_OBJECTS or not isinstance(explanation.decision, Admit | Queue):
            return None
        target = _target(subject, explanation, evictions)
        if target is None:
            return None
        if self._movement is None:
            self._movement, _ = read_movement(self._objects, evictions, now=self._now, per_workload=1)
        rooms = make_room((target._replace(gang="", domain=None),), self._movement).rooms
        room = next((room for room in rooms if room.moves), None)
        return None if room is None else _by_moves(room)


def _target(subject: Subject, explanation: Explanation, evictions: Evictions) -> Target | None:
    world, held, pod = evictions.world, evictions.held, explanation.pod
    if subject.existing is None:
        return target_to_come(pod, requester_of(pod, explanation.user or ""), world, held=held)
    uid = Uid(subject.existing.uid)
    if (waiting := world.waiting.get(uid)) is not None:
        return target_in_line(waiting, world, held=held)
    gpu_pod = evictions.reclaim_index.get(uid)
    return None if gpu_pod is None else target_of_scheduler(gpu_pod, pod, world, held=held)


def _by_moves(room: Room) -> RoomByMoves:
    return RoomByMoves(room.places[0].node, tuple(map(move_report, room.moves)), gpu_hours(room.lost_work))
