"""The watch of the page: the kinds of the webhook's world with all their fields, and the Events of Fairgate.

Each kind is listed once and watched once, however many viewers there are.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec

from webhook.cluster.watch.kinds import ALIVE, FAILED_PODS
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.cluster.watch.world_kinds import charges_kind, world_kinds
from webhook.core.model.names import Namespace, NodeName, Uid
from webhook.core.world.world import World
from webhook.kube.ledger.reports import Report
from webhook.kube.objects import keys
from webhook.kube.pod.run_times import to_run
from webhook.kube.workloads.scalers import SCALERS
from webhook.kube.world_file.world_objects import LEDGERS, WORLD_KINDS
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.kept_objects import path_of
from webhook.page.views import decisions

Json = Mapping[str, Any]
COMPONENTS: Final = ("fairgate", "fairgate-evictor")
"""The sources of Fairgate's Events."""

_HEADS: Final = {
    each.path.rpartition("/")[2]: {"apiVersion": each.api_version, "kind": each.kind}
    for each in (*WORLD_KINDS, LEDGERS)
}


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
            state.note_report(msgspec.convert(found, Report), time.time())
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
    """Note the decision on a pod, and since when it runs."""
    state.reading.runs.add(to_run(found))
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
        state.reading.runs.end(Uid(uid), now=int(time.time()))
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
