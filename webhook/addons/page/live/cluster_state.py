"""What is watched.

The objects of the cluster as a world file keeps them, encoded: what explanations read besides the world.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from webhook.addons.page.views import decisions
from webhook.addons.page.views.decisions import DecisionLog, of_pod
from webhook.addons.page.views.gpu_map import GpuSums, MapRow, RowReader, encode, sums_of
from webhook.core.explain.line_rows import EarlierWaits
from webhook.core.model.amounts import Namespace, NodeName, Uid, natural_sort_key
from webhook.core.model.node import Autoscaler
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.ledger.reports import Report, waits_of
from webhook.kube.nodes.nodes import objects_of
from webhook.kube.objects import keys
from webhook.kube.watched.kept_fields import kept_fields
from webhook.kube.watched.kinds import ALIVE, FAILED_PODS, WatchedKind
from webhook.kube.watched.world_kinds import FILE_KINDS, charges_kind, world_kinds
from webhook.kube.workloads.unknown_kinds import SCALERS

LARGEST: Final = 65_536
"""Bytes of one object that are kept; a larger one counts in the world, and cannot be explained."""

MOST: Final = 1 << 29
"""Bytes of all objects together."""

Json = Mapping[str, Any]


class KeptObjects:
    """Objects by kind and name. `left_out` counts those that were too large; `annotations` are kept, too."""

    def __init__(self, annotations: frozenset[str] = frozenset()) -> None:
        self.left_out = 0
        self._annotations = annotations
        self._found: dict[tuple[str, str], bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def set(self, found: Json) -> bool:
        """Keep the present version of an object; return False where what is kept is as it was."""
        kept = kept_fields(found, annotations=self._annotations)
        if kept is None:
            return True
        encoded = msgspec.json.encode(kept)
        key = _key(found)
        if self._found.get(key) == encoded:
            return False
        self.remove(*key)
        if len(encoded) > LARGEST or self._bytes + len(encoded) > MOST:
            self.left_out += 1
            return True
        self._found[key] = encoded
        self._bytes += len(encoded)
        return True

    def remove(self, kind: str, path: str) -> None:
        """Forget an object; one that is not there changes nothing."""
        encoded = self._found.pop((kind, path), None)
        if encoded is not None:
            self._bytes -= len(encoded)

    def get(self, kind: str, path: str) -> Json | None:
        """Return an object by its kind and namespace/name; None where it is not there."""
        encoded = self._found.get((kind, path))
        return None if encoded is None else msgspec.json.decode(encoded)

    def all(self) -> Iterator[Json]:
        """Yield every object, in no order."""
        for encoded in self._found.values():
            yield msgspec.json.decode(encoded)

    def among(self, is_wanted: Callable[[str, str], bool]) -> Iterator[Json]:
        """Yield the objects that are wanted by their kind and namespace/name."""
        for key, encoded in self._found.items():
            if is_wanted(*key):
                yield msgspec.json.decode(encoded)

    def of_kind(self, kind: str) -> Iterator[Json]:
        """Yield the objects of a kind."""
        for (each, _), encoded in self._found.items():
            if each == kind:
                yield msgspec.json.decode(encoded)


def path_of(found: Json) -> str:
    """Return namespace/name of an object, or its name if it is cluster-scoped."""
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")


def _key(found: Json) -> tuple[str, str]:
    return found["kind"], path_of(found)


# The cluster as all viewers of the page share it: one world, its kept objects, the decisions, and the rows of the map.
#
# Changes are only noted; `changed_rows` computes the rows of the nodes that they touched.


def is_fresh() -> str | None:
    """Return that nothing is out of date."""
    return None


def _first_sequence() -> int:
    """Return a number that no earlier process has reached: pages that stayed open see that they are behind."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Reading:
    """What was read of a cluster or a file. `is_room_known`: all nodes and pods are there.

    `notes` say what the user of the page may not read.
    """

    world: World
    objects: KeptObjects
    notes: tuple[str, ...] = ()
    is_room_known: bool = True


@dataclass(slots=True)
class ClusterState:
    """What is shown. `origin` names the source; `why_stale` is why it is out of date, None while it is not.

    `problem` is why nothing is shown, "" while something is. `on_change` is called at each change. `saved` is when the
    file was written, in seconds of Unix time; 0 for a live cluster. `waits` are how long earlier pods waited in
    line, as the leader published it.
    """

    reading: Reading
    origin: str
    domain: str
    why_stale: Callable[[], str | None] = is_fresh
    problem: str = ""
    decisions: DecisionLog = field(default_factory=DecisionLog)
    on_change: Callable[[], None] = lambda: None
    rows: dict[NodeName, MapRow] = field(default_factory=dict)
    encoded: dict[NodeName, bytes] = field(default_factory=dict)
    sums: dict[NodeName, GpuSums] = field(default_factory=dict)
    sequence: int = field(default_factory=_first_sequence)
    saved: int = 0
    waits: EarlierWaits = field(default_factory=EarlierWaits)
    _reader: RowReader | None = None
    _rejecting: frozenset[NodeName] = frozenset()
    _dirty: dict[NodeName, None] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The world that is shown."""
        return self.reading.world

    def note_report(self, report: Report) -> None:
        """Note what Fairgate publishes of itself."""
        if report.starts:
            self.waits = EarlierWaits(waits_of(report))

    def touch(self, *nodes: NodeName | None) -> None:
        """Note that something changed, on these nodes if any."""
        self._dirty.update((name, None) for name in nodes if name is not None)
        self.on_change()

    def touch_all(self) -> None:
        """Note that every node may have changed."""
        self.touch(*(node.name for node in self.world.fleet.nodes()), *self.rows)

    def tick(self, now: int) -> None:
        """Set the time, in Unix seconds: room may no longer be promised, and other nodes may reject pods."""
        self.world.tick(now)
        before, self._rejecting = self._rejecting, frozenset(each.node for each in self.world.rejecting_nodes.closed())
        if changed := before ^ self._rejecting:
            self.touch(*changed)

    def set_policy(self, policy: Policy) -> None:
        """Decide by another policy from now on."""
        self.world.set_policy(policy)
        self._reader = None
        self.touch_all()

    def note_autoscalers(self, found: frozenset[Autoscaler], now: float) -> None:
        """Note which autoscalers the cluster has, for explanations as well: they read objects."""
        for made in objects_of(Autoscaler, at=now):
            self.reading.objects.remove(made["kind"], path_of(made))
        for made in objects_of(found, at=now):
            self.reading.objects.set(made)
        self.touch_all()

    def replace(self, reading: Reading) -> None:
        """Show another reading of the same source, with the decisions on its pods."""
        self.reading = reading
        for pod in reading.objects.of_kind("Pod"):
            if (admitted := of_pod(pod)) is not None:
                self.decisions.add(admitted)
        self._reader = None
        self.touch_all()

    def take_dirty(self) -> list[NodeName]:
        """Return the nodes that were touched since the last call."""
        taken = list(self._dirty)
        self._dirty.clear()
        return taken

    def changed_rows(self, nodes: Iterable[NodeName]) -> Iterator[tuple[NodeName, MapRow | None]]:
        """Update the rows of these nodes; yield those that differ now, None for a node that went."""
        if self._reader is None:
            self._reader = RowReader(self.world, domain=self.domain)
        for name in nodes:
            node = self.world.fleet.get(name)
            row = None if node is None else self._reader.row(node)
            if row is None:
                if self.rows.pop(name, None) is not None:
                    del self.encoded[name], self.sums[name]
                    yield name, None
                continue
            written = encode(row)
            if self.encoded.get(name) != written:
                self.rows[name], self.encoded[name], self.sums[name] = row, written, sums_of(row)
                yield name, row

    def sorted_rows(self) -> list[MapRow]:
        """Return all rows, gpu-2 before gpu-10."""
        return [self.rows[name] for name in sorted(self.rows, key=natural_sort_key)]


# The watch of the page: the kinds of the webhook's world with all their fields, and the Events of Fairgate.
#
# Each kind is listed once and watched once, however many viewers there are.


COMPONENTS: Final = ("fairgate", "fairgate-evictor")
"""The sources of Fairgate's Events."""

_HEADS: Final = {each.resource: {"apiVersion": each.api, "kind": each.kind} for each in FILE_KINDS}


def page_kinds(state: ClusterState) -> tuple[WatchedKind[Any], ...]:
    """Return what the page watches of the world, kept in `state`."""
    world = state.world
    kinds = (*world_kinds(world, pods=world), charges_kind(world))
    return tuple(_kept(kind, state) for kind in kinds)


def _kept(kind: WatchedKind[Any], state: ClusterState) -> WatchedKind[Any]:
    if kind.name == FAILED_PODS:
        return kind  # nothing of them is shown but the nodes that reject them, see ClusterState.tick
    return _pods(kind, state) if kind.name == "pods" else _others(kind, state)


def event_kinds(state: ClusterState) -> tuple[WatchedKind[Any], ...]:
    """Return the Events of Fairgate, which the API server selects: those of all others never come."""
    return tuple(
        WatchedKind(
            name="events",
            path="/api/v1/events",
            params={"fieldSelector": f"source={component}"},
            item=dict[str, Any],
            key=path_of,
            handle=path_of,
            apply=lambda found: note_event(found, state),
            remove=_stays,
        )
        for component in COMPONENTS
    )


def report_kind(state: ClusterState, set_documents: Callable[[Json], None]) -> WatchedKind[Any]:
    """Return the Reports of Fairgate, of which `set_documents` receives the policy in force, and `state` the others."""

    def apply(found: Json) -> bool:
        policy = found.get("policy")
        with suppress(msgspec.ValidationError):  # of a later version
            state.note_report(msgspec.convert(found, Report))
        if isinstance(policy, dict):
            set_documents(policy)
        return True

    return WatchedKind(
        name=keys.REPORTS,
        path=f"/apis/{keys.OWN_API}/{keys.REPORTS}",
        item=dict[str, Any],
        key=path_of,
        handle=path_of,
        apply=apply,
        remove=_stays,
        is_optional=True,
    )


def note_event(found: Json, state: ClusterState) -> bool:
    """Note the decision that an Event reports; return whether it reports one."""
    decision = decisions.of_event(found)
    if decision is not None and state.decisions.add(decision):
        state.touch()
    return decision is not None


def note_pod(found: Json, state: ClusterState) -> None:
    """Note the decision on a pod."""
    admitted = decisions.of_pod(found)
    if admitted is not None:
        state.decisions.add(admitted)


def _others(kind: WatchedKind[Any], state: ClusterState) -> WatchedKind[Any]:
    touched = _touched_by(kind.name, state)
    kept_kind = _HEADS.get(kind.name, {}).get("kind", "")

    def apply(found: Json) -> bool:
        path = path_of(found)
        before = _team(kind.name, path, state.world)
        is_kept = kind.apply(_read(kind, found))
        if not is_kept or _is_new(found, kind.name, state):
            touched(path, before)
        return is_kept

    def remove(path: str) -> None:
        before = _team(kind.name, path, state.world)
        kind.remove(path)
        state.reading.objects.remove(kept_kind, path)
        touched(path, before)

    return replace(kind, item=dict[str, Any], key=path_of, handle=path_of, apply=apply, remove=remove)


def _touched_by(name: str, state: ClusterState) -> Callable[[str, str], None]:
    def touched(path: str, team: str) -> None:
        if name == "nodes":
            state.touch(NodeName(path))
        elif name in {SCALERS, keys.TEAM_LEDGERS} or (name == "namespaces" and team == _team(name, path, state.world)):
            state.touch()
        elif name in {"priorityclasses", "persistentvolumes"}:
            return  # no row shows them
        else:
            state.touch_all()

    return touched


def _team(name: str, path: str, world: World) -> str:
    return world.tenancy(Namespace(path)).team_name if name == "namespaces" else ""


def _pods(kind: WatchedKind[Any], state: ClusterState) -> WatchedKind[Any]:
    """Return the kind of pods; one that cannot be read is counted by what can be read of it, as by the server."""
    names: dict[str, str] = {}  # UID → namespace/name

    def apply(found: Json) -> bool:
        world = state.world
        uid = Uid(_uid(found))
        before = world.pod(uid)
        is_kept = kind.apply(_read(kind, found))
        after = world.pod(uid)
        is_new = not is_kept or _is_new(found, kind.name, state)
        if is_kept:
            names[uid] = path_of(found)
            note_pod(found, state)
        if is_new:
            state.touch(before.node if before is not None else None, after.node if after is not None else None)
        return is_kept

    def remove(uid: str) -> None:
        before = state.world.pod(Uid(uid))
        kind.remove(uid)
        state.reading.objects.remove("Pod", names.pop(uid, ""))
        state.touch(before.node if before is not None else None)

    return replace(
        kind,
        item=dict[str, Any],
        params=ALIVE,
        key=path_of,
        handle=_uid,
        apply=apply,
        remove=remove,
        salvage=None,
    )


def _read(kind: WatchedKind[Any], found: Json) -> object:
    encoded = msgspec.json.encode(found)  # some fields are decoded later, from bytes
    try:
        return msgspec.json.decode(encoded, type=kind.item)
    except msgspec.ValidationError:
        item = None if kind.salvage is None else kind.salvage(encoded)
        if item is None:
            raise
        return item


def _is_new(found: Json, name: str, state: ClusterState) -> bool:
    """Keep an object; return False where what Fairgate reads of it is as it was, as at most changes of a status.

    Lists leave out its apiVersion and kind.
    """
    return state.reading.objects.set({**_HEADS.get(name, {"kind": ""}), **found})


def _uid(found: Json) -> str:
    return str(found["metadata"].get("uid", ""))


def _stays(_path: str) -> None:
    """Keep what is shown of an object that went."""
