"""The map of GPUs.

The GPU map: each node with its GPUs, and which pod has which part of them. Pure.

A row is JSON of its own, so that a change of a node is sent alone. Arrays instead of objects where there are many: a
map of 40,000 GPUs stays below 5 MB.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from string import ascii_lowercase, digits
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from webhook.addons.page.views.teams import Viewer
from webhook.core.admission.pools import membership
from webhook.core.explain.node_rows import DeviceGroup, NodeRow, node_row
from webhook.core.model.amounts import TeamName, Units, gpu_number, gpus_text, plural
from webhook.core.model.constraints import Tier
from webhook.core.model.node import Node
from webhook.core.model.pod import Resident
from webhook.core.placement.best_nodes import GpuInventory
from webhook.core.world.world import World

ZONE: Final = "topology.kubernetes.io/zone"
"""The label whose values are the domains of the map, unless another one is named."""


class MapPod(msgspec.Struct, array_like=True, frozen=True):
    """A pod with GPUs on a node. `since` is when it was created in seconds of Unix time, 0 where that is not known.

    `idle`: it does not use its GPUs, where policy has that measured. All but the last two are empty where the
    viewer may not see it.
    """

    namespace: str
    name: str
    owner: str
    user: str
    since: int
    team: str
    preemptible: bool
    idle: bool


class MapDevice(msgspec.Struct, array_like=True, frozen=True):
    """One GPU: its pieces, for each pod on it the pod's index in the row and its pieces, and those no pod can get."""

    pieces: int
    parts: tuple[tuple[int, int], ...]
    shut: int = 0


class MapGroup(msgspec.Struct, array_like=True, frozen=True):
    """The GPUs of one resource. `is_packed`: it is known which of them a pod has.

    `piece` is how much of a GPU one piece is, to a millionth; 0 where each device is a GPU.
    """

    resource: str
    is_packed: bool
    over: int
    devices: tuple[MapDevice, ...]
    piece: float = 0


class MapRow(msgspec.Struct, frozen=True):
    """A node. `state` says why it takes no pods, or that it rejects them; `held`: its free GPUs are reserved.

    `free` are the GPUs that any new pod may take, to a millionth: none on a node that is closed or held. `stranded` are
    those of them beside used ones, by which nodes are sorted.
    """

    node: str
    model: str
    pools: tuple[str, ...]
    domain: str
    state: str
    held: bool
    free: int | float
    stranded: int | float
    pods: tuple[MapPod, ...]
    groups: tuple[MapGroup, ...]


_REJECTS: Final = "rejects pods"  # without the teams: not every viewer may know them
_HIDDEN: Final = MapPod("", "", "", "", 0, "", preemptible=False, idle=False)
_FEW: Final = 64
_encoder: Final = msgspec.json.Encoder()


class RowReader:
    """Reads the rows of a world under one policy. `domain` is the label of domains."""

    def __init__(self, world: World, *, domain: str = ZONE) -> None:
        self._world = world
        self._domain = domain
        self._pools = [(pool.name, membership(pool)) for pool in world.policy.pools]

    def row(self, node: Node) -> MapRow | None:
        """Return the row of a node; None where it has no GPUs."""
        found = (pod for pod in self._world.pods_on(node.name) if pod.demand.devices)
        with_gpus = sorted(found, key=lambda pod: (pod.namespace, pod.name))
        row = node_row(node, with_gpus, self._world)
        if not row.groups:
            return None
        pods = list(_pods(with_gpus, row, measures_idle=self._world.policy.idle is not None))
        index = {f"{pod.namespace}/{pod.name}": number for number, pod in enumerate(pods)}
        free = [(group.free_units if row.is_open else 0, group) for group in row.groups]
        return MapRow(
            node=row.name,
            model=row.model,
            pools=tuple(name for name, wanted in self._pools if wanted.admits(node.name, node.labels, node.taints)),
            domain=node.labels.get(self._domain, ""),
            state=row.state or (_REJECTS if row.rejecting else ""),
            held=row.is_held,
            free=gpu_number(sum(units for units, _ in free)),
            stranded=gpu_number(sum(units for units, group in free if group.used)),
            pods=tuple(pods),
            groups=tuple(_group(group, index) for group in row.groups),
        )


def _pods(with_gpus: Iterable[Resident], row: NodeRow, *, measures_idle: bool) -> Iterator[MapPod]:
    """Yield the pods that have a part of a GPU of the row."""
    allocated = {part.pod: part for group in row.groups for device in group.devices for part in device.allocations}
    for pod in with_gpus:
        part = allocated.get(f"{pod.namespace}/{pod.name}")
        if part is not None:
            owner = f"{pod.owner.kind}/{pod.owner.name}" if pod.owner is not None else ""
            is_preemptible = part.tier is Tier.PREEMPTIBLE
            yield MapPod(
                namespace=pod.namespace,
                name=pod.name,
                owner=owner,
                user=pod.user or "",
                since=pod.created,
                team=part.team,
                preemptible=is_preemptible,
                idle=measures_idle and bool(pod.idle_since),
            )


def _group(group: DeviceGroup, index: dict[str, int]) -> MapGroup:
    devices = tuple(
        MapDevice(device.pieces, tuple((index[part.pod], part.pieces) for part in device.allocations), device.shut)
        for device in group.devices
    )
    return MapGroup(group.resource, group.is_packed, group.over, devices, gpu_number(group.weight))


def seen_by(row: MapRow, viewer: Viewer) -> MapRow | None:
    """Return what a viewer may see of a row; None where that is nothing.

    Who may list nodes sees what is on the Node: its GPUs and labels, and whether it takes pods. Who may list the pods
    of some namespaces alone sees these on it, and not which other GPUs are in use: all of those are one part without a
    name. Without nodes there are only own pods, on the node that they name. Pools are of the policy, not of the Node.
    """
    if viewer.sees_all:
        return row
    own = [number for number, pod in enumerate(row.pods) if viewer.sees(pod.namespace)]
    if not own and not viewer.nodes:
        return None
    index = {number: place for place, number in enumerate(own)}
    pods = tuple(row.pods[number] for number in own)
    if viewer.nodes:
        groups = tuple(_own_of(group, index, rest=len(own)) for group in row.groups)
        return msgspec.structs.replace(row, pools=(), pods=(*pods, _HIDDEN), groups=groups, free=0, stranded=0)
    groups = tuple(found for group in row.groups if (found := _own_alone(group, index)).devices)
    return MapRow(row.node, "", (), "", "", held=False, free=0, stranded=0, pods=pods, groups=groups)


def _own_of(group: MapGroup, index: dict[int, int], *, rest: int) -> MapGroup:
    """Return the GPUs of a node with own pods on them; whether the rest is in use is not shown."""
    if group.is_packed:
        own = [tuple((index[n], pieces) for n, pieces in device.parts if n in index) for device in group.devices]
    else:  # where a pod is drawn depends on the pods before it: own ones are drawn first
        left = [[place, pieces] for place, pieces in _sums(group, index).items()]
        own = [tuple(_filled(device.pieces, left)) for device in group.devices]
    devices = tuple(
        MapDevice(device.pieces, _with_rest(parts, device.pieces, rest))
        for device, parts in zip(group.devices, own, strict=True)
    )
    return msgspec.structs.replace(group, over=0, devices=devices)


def _own_alone(group: MapGroup, index: dict[int, int]) -> MapGroup:
    """Return what own pods have of a resource, as if each piece were a GPU; many pieces are one."""
    devices: list[MapDevice] = []
    for place, pieces in _sums(group, index).items():
        number = pieces if pieces <= _FEW else 1
        devices += [MapDevice(pieces // number, ((place, pieces // number),))] * number
    return MapGroup(group.resource, is_packed=False, over=0, devices=tuple(devices), piece=group.piece or 1)


def _sums(group: MapGroup, index: dict[int, int]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for device in group.devices:
        for number, pieces in device.parts:
            if number in index:
                sums[index[number]] = sums.get(index[number], 0) + pieces
    return dict(sorted(sums.items()))


def _filled(free: int, left: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a GPU of so many pieces, taken from what pods still have to be drawn."""
    while free and left:
        place, pieces = left[0]
        taken = min(free, pieces)
        free -= taken
        left[0][1] -= taken
        if not left[0][1]:
            left.pop(0)
        yield place, taken


def _with_rest(parts: tuple[tuple[int, int], ...], pieces: int, rest: int) -> tuple[tuple[int, int], ...]:
    left = pieces - sum(taken for _, taken in parts)
    return (*parts, (rest, left)) if left > 0 else parts


def encode(row: MapRow) -> bytes:
    """Return a row as JSON."""
    return _encoder.encode(row)


def by_fragmentation(rows: Sequence[MapRow]) -> list[MapRow]:
    """Sort rows: most free GPUs beside used ones first, then wholly free nodes, then full ones."""
    return sorted(rows, key=lambda row: (-row.stranded, -row.free))


def holders_of(row: MapRow) -> Iterator[tuple[MapPod, str]]:
    """Yield each pod of a row with what it has of each resource, for the table beside the picture."""
    taken: dict[int, dict[str, tuple[int, float]]] = {}
    for group in row.groups:
        for device in group.devices:
            for number, pieces in device.parts:
                of_pod = taken.setdefault(number, {})
                before, gpus = of_pod.get(group.resource, (0, 0.0))
                of_pod[group.resource] = before + pieces, gpus + pieces * (group.piece or 1 / device.pieces)
    for index, pod in enumerate(row.pods):
        yield pod, ", ".join(_taken(resource, *have) for resource, have in taken.get(index, {}).items())


def _taken(resource: str, pieces: int, gpus: float) -> str:
    """Return how many GPUs a pod has, with the pieces of the resource where these are parts of GPUs."""
    text = f"{round(gpus, 3):g} GPU{'s' * (round(gpus, 3) != 1)}"
    return text if round(gpus, 3) == pieces else f"{text} ({resource} {pieces})"


# The cluster in a few numbers: whose its GPUs are, what is waited for, and what fits now. Pure.


class GpuSums(NamedTuple):
    """The GPUs of nodes, each in one part: the sum is the capacity.

    `held` are free ones that are kept for waiting pods, or promised to pods that were sent there; `closed` are the
    unused ones of closed nodes.
    """

    guaranteed: float = 0.0
    preemptible: float = 0.0
    held: float = 0.0
    free: float = 0.0
    closed: float = 0.0


def sums_of(row: MapRow) -> GpuSums:
    """Return the GPUs of a node."""
    guaranteed = preemptible = unused = 0.0
    for group in row.groups:
        for device in group.devices:
            piece = group.piece or 1 / max(1, device.pieces)
            for number, pieces in device.parts:
                if row.pods[number].preemptible:
                    preemptible += pieces * piece
                else:
                    guaranteed += pieces * piece
            unused += max(0, device.pieces - sum(pieces for _, pieces in device.parts)) * piece
    kept = max(0.0, unused - row.free)
    is_closed = row.state not in ("", _REJECTS)
    return GpuSums(guaranteed, preemptible, 0.0 if is_closed else kept, row.free, kept if is_closed else 0.0)


class Tile(NamedTuple):
    """A part of the GPUs: whole ones, which add up, and exactly; and its part of all in percent."""

    kind: str
    gpus: str
    exact: str
    percent: float


class Summary(NamedTuple):
    """Numbers of GPUs as text. `capacity` and `largest` are empty where nodes are not shown.

    `tiles` are the parts of the capacity, or what the teams of the viewer use. `largest` has the largest pod that fits
    now for each model that has room, the largest first.
    """

    tiles: tuple[Tile, ...]
    pods_in_line: str
    gpus_in_line: str
    waiting: str
    capacity: str = ""
    largest: tuple[tuple[str, str], ...] = ()


def summary_of(
    world: World, teams: Iterable[TeamName], models: Sequence[GpuInventory], nodes: Sequence[GpuSums]
) -> Summary:
    """Return the numbers of these teams, and of these GPUs; without nodes, what the teams use."""
    usages = [(world.usage(team), team) for team in teams]
    waiting = sum(usage.waiting for usage, _ in usages)
    lines = [world.waiting.uncharged(team) for _, team in usages]
    if not nodes:
        preemptible = sum(usage.preemptible for usage, _ in usages)
        used = sum(usage.total for usage, _ in usages) - waiting
        sums = dict(zip(GpuSums._fields, map(gpu_number, (max(0, used - preemptible), preemptible)), strict=False))
    else:
        added = zip(*nodes, strict=True)
        sums = dict(zip(GpuSums._fields, (round(sum(each), 3) for each in added), strict=False))
    largest: dict[str, Units] = {}
    for each in sorted(models, key=lambda model: -model.largest):
        if each.largest:
            largest.setdefault(str(each.model or each.resource), each.largest)
    return Summary(
        tiles=tuple(_tiles(sums)),
        pods_in_line=plural(sum(line.pods for line in lines), "pod"),
        gpus_in_line=_text(sum(line.gpus for line in lines)),
        waiting=_text(waiting) if waiting else "",
        capacity=f"{round(sum(sums.values())):,}" if nodes else "",
        largest=tuple((_text(gpus), model) for model, gpus in largest.items()),
    )


def _tiles(sums: Mapping[str, float]) -> Iterator[Tile]:
    """Yield the parts, whose whole numbers add up: those that lose most by it are rounded up."""
    whole = {kind: int(gpus) for kind, gpus in sums.items()}
    short = round(sum(sums.values())) - sum(whole.values())
    for kind in sorted(sums, key=lambda kind: whole[kind] - sums[kind])[:short]:
        whole[kind] += 1
    total = max(1.0, sum(sums.values()))
    for kind, gpus in sums.items():
        yield Tile(kind, f"{whole[kind]:,}", f"{round(gpus, 3):,g}", round(100 * gpus / total, 2))


def _text(gpus: Units) -> str:
    return gpus_text(gpus, rounded="~", tiny="<0.001")


# One or two letters for each team, which say on the map whose a GPU is where colors do not. Pure.


COLORS: Final = 8
"""Colors of teams: of more teams some have the same, and their letters tell them apart."""


def team_colors(names: Iterable[str]) -> dict[str, int]:
    """Return a color of each name, by its hash: it stays where others come and go, unless two would have the same."""
    found: dict[str, int] = {}
    uses = Counter(dict.fromkeys(range(COLORS), 0))
    for hashed, name in sorted((crc32(name.encode()), name) for name in names):
        by_turn = (uses[(hashed + step) % COLORS] for step in range(COLORS))
        _, step = min((used, step) for step, used in enumerate(by_turn))
        found[name] = (hashed + step) % COLORS
        uses[found[name]] += 1
    return found


def team_letters(names: Sequence[str]) -> dict[str, str]:
    """Return the first letter of each name in order, and where several begin alike a second that tells them apart.

    Of more than 36 names that begin alike, the last have the first letter alone.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name[:1].upper(), []).append(name)
    found: dict[str, str] = {}
    for first, group in alike.items():
        seconds = _seconds(group) if len(group) > 1 else [""]
        found |= {name: first + second for name, second in zip(group, seconds, strict=True)}
    return {name: found[name] for name in names}


def _seconds(names: Sequence[str]) -> list[str]:
    """Return a letter of each name that no other name has in its place, else one that is not taken."""
    counts = Counter(at for name in names for at in enumerate(name.lower()))
    taken: set[str] = set()
    found = []
    for name in names:
        own = (letter for at, letter in enumerate(name.lower()) if at and counts[at, letter] == 1)
        free = chain(own, name[1:].lower(), digits, ascii_lowercase)
        letter = next((each for each in free if each.isalnum() and each not in taken), "")
        taken.add(letter)
        found.append(letter)
    return found
