"""A world read from a live cluster, and what of it could not be read.

What part of a cluster a command could read, and notes on the rest, with the rights that would show it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from webhook.cli.addons import ROOM, ask
from webhook.cluster.api.client import ApiConnection, ApiError, ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.listing import ReadScope, list_kind, load, read_permitted
from webhook.cluster.watch.feed import find_autoscalers
from webhook.cluster.writes.reports import read_report
from webhook.core.model.amounts import TeamName, Units, parse_amount
from webhook.core.model.node import Autoscaler
from webhook.core.model.policy import Enforcement, Policy
from webhook.core.quota.charges import InFlightCharge
from webhook.core.quota.usage import department_of
from webhook.core.world.hidden_usage import Nameless, Totals, Unnamed
from webhook.core.world.world import World
from webhook.kube.ledger import reports
from webhook.kube.ledger.team_ledger import charges_of
from webhook.kube.nodes.nodes import objects_of
from webhook.kube.objects import keys
from webhook.kube.watched.kept_fields import has_ended_for_good
from webhook.kube.watched.kinds import FAILED, WatchedKind
from webhook.kube.watched.world_kinds import (
    LEDGERS,
    LIMIT_RANGES,
    PODS,
    SAVED_KINDS,
    WORLD_KINDS,
    WorldKind,
    world_kinds,
)
from webhook.policy.documents import PolicyError
from webhook.policy.watch import parse, with_enforcement

_CAPACITY = frozenset({"nodes", "pods"})
_RECENT_SECONDS = 30
"""A younger world needs no mention of its age: it is renewed every ten seconds."""

ASK = f"ask an admin for `kubectl create clusterrolebinding fairgate-NAME --clusterrole={keys.VIEWER} --user=NAME`"
"""What a person does who lacks the right to read what Fairgate publishes."""

_RARE = frozenset(
    {
        *("podgroups", "resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices"),
        *("horizontalpodautoscalers", "devicetaintrules", "poddisruptionbudgets", "limitranges", "persistentvolumes"),
    }
)
"""Kinds that few pods depend on: notes name them only if no other kind is missing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read of a live cluster. A file is always read completely.

    `has_totals`: the usage of all teams was read, if it was needed. `room_age` is how old the anonymous world is that
    stands for nodes and pods which were not read, in seconds; None if there is none, and `why_no_room` says why.
    `has_charges`: the TeamLedgers were read, which list the charges that no pod shows yet.
    """

    extents: tuple[ReadScope, ...] = ()
    has_totals: bool = True
    room_age: float | None = None
    why_no_room: str = ""
    has_charges: bool = True

    @property
    def missing(self) -> tuple[ReadScope, ...]:
        """The kinds that were not read completely."""
        return tuple(extent for extent in self.extents if not extent.is_all)

    @property
    def has_names(self) -> bool:
        """Whether all nodes and all pods were read, each with its name."""
        return not any(extent.resource in _CAPACITY for extent in self.missing)

    @property
    def is_room_known(self) -> bool:
        """Whether free capacity is known: of all nodes and pods, or of the anonymous world."""
        return self.has_names or self.room_age is not None

    def is_partial(self, resource: str) -> bool:
        """Whether a kind was not read completely."""
        return any(extent.resource == resource for extent in self.missing)

    def covers(self, resource: str, namespace: str) -> bool:
        """Whether a kind was read in a namespace."""
        return not any(e.resource == resource and namespace not in e.namespaces for e in self.missing)

    def notes(self) -> list[str]:
        """Return what is missing, and what would show it: the rights first, last what matters most."""
        charges = [] if self.has_charges else [f"charges of pods that are still to start are unknown: {ASK}"]
        kinds = self._of_kinds()
        return [*kinds[:-1], *charges, *kinds[-1:]]

    def _of_kinds(self) -> list[str]:
        if not self.missing:
            return []
        if self.room_age is not None and not self.has_names:
            old = f", as of {self.room_age:.0f} s ago" if self.room_age >= _RECENT_SECONDS else ""
            return [f"of other namespaces pods are counted and not named{old}"]
        none = [extent.resource for extent in self.missing if not extent.namespaces]
        some = [extent for extent in self.missing if extent.namespaces]
        parts = [_all_of(none)] if none else []
        parts += (
            [f"{_all_of([e.resource for e in some])} outside of namespace {_names(some[0].namespaces)}"] if some else []
        )
        notes = [f"you may not list {'; '.join(parts)}"]
        if self.is_partial("pods") and not self.has_totals:
            notes.append("usage counts only the pods shown, and may be higher")
        if not self.is_room_known:
            notes.append(f"free room is unknown: {self.why_no_room or ASK}")
        return notes

    def print_note(self) -> None:
        """Print one line on standard error: the most important of the notes."""
        if notes := self.notes():
            click.echo(f"fairgate: {notes[-1]}", err=True)


COMPLETE = Coverage()
"""Nothing is missing."""


def _all_of(resources: list[str]) -> str:
    shown = [name for name in resources if name not in _RARE] or resources
    return _names(shown)


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:-1]) + f" and {listed[-1]}" if len(listed) > 1 else "".join(listed)


# Reads a live cluster once, as far as the user's rights allow, and the policy in force there.


ENDED_PODS: Final = "500"
MAX_ROOM_SECONDS: Final = 600.0
"""An anonymous world that is older is not used: it is written again every minute."""

ENDED_READS: Final = 8
"""How often as many ended pods are read: each time of other namespaces, so that those of one do not keep the others'
from being read."""


class _ListMeta(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _Listed(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]] | None = None
    metadata: _ListMeta = _ListMeta()


class NothingReadableError(ClusterError):
    """The user may read none of the kinds of a world."""


@dataclass(frozen=True, slots=True)
class Found:
    """The objects of a cluster, and what stands for those that are missing."""

    objects: tuple[Mapping[str, Any], ...]
    unnamed: Unnamed
    coverage: Coverage


async def read_objects(
    kubeconfig: Path | None, namespaces: Sequence[str], *, has_room: bool = True, is_saved: bool = False
) -> Found:
    """Read the objects of a world with all their fields; without `has_room` no anonymous world. Raises ClusterError.

    `is_saved`: a file is made of them, which has some kinds more.
    """
    kinds = (*SAVED_KINDS, *WORLD_KINDS) if is_saved else WORLD_KINDS
    failed = replace(PODS, selector=FAILED["fieldSelector"])
    found: dict[str, list[dict[str, Any]]] = {kind.kind: [] for kind in kinds}

    async with await connect(kubeconfig) as connection:

        def reading(kind: WorldKind[Any]) -> Callable[[str], Awaitable[None]]:
            async def read(path: str) -> None:
                found[kind.kind] += await list_kind(connection, kind, path=path)

            return read

        async def read_rejected(path: str) -> None:
            listed = await list_kind(connection, failed, path=path)
            found[PODS.kind] += [each for each in listed if not has_ended_for_good(each)]

        reads = [*((kind.path, reading(kind)) for kind in kinds), (PODS.path, read_rejected)]
        read = await _read(connection, reads, await _scope(kubeconfig, namespaces), has_room=has_room)
        coverage, unnamed, ledgers = read
        at = connection.server_time or time.time()
        autoscalers = objects_of(await _autoscalers(connection, unnamed), at=at)
    listed = (each for kind in kinds for each in found[kind.kind])
    return Found((*listed, *ledgers, *autoscalers), unnamed, coverage)


async def read_limit_ranges(kubeconfig: Path | None, namespaces: Sequence[str]) -> list[dict[str, Any]]:
    """Read the LimitRanges of a cluster as far as they may be listed. Raises ClusterError."""
    found: list[dict[str, Any]] = []
    async with await connect(kubeconfig) as connection:

        async def read(path: str) -> None:
            found.extend(await list_kind(connection, LIMIT_RANGES, path=path))

        try:
            await read_permitted(LIMIT_RANGES.path, read, namespaces=await _scope(kubeconfig, namespaces))
        except ApiError as error:
            if not error.is_missing:
                raise
    return found


async def read_world(kubeconfig: Path | None, world: World, namespaces: Sequence[str]) -> tuple[Coverage, Unnamed]:
    """Fill a world with the objects of a cluster, decoded as the server decodes them. Raises ClusterError."""
    world.stages.read_at = int(time.time())
    async with await connect(kubeconfig) as connection:

        def reading(kind: WatchedKind[Any]) -> Callable[[str], Awaitable[None]]:
            return lambda path: load(connection, kind, path=path)

        reads = [(kind.path, reading(kind)) for kind in world_kinds(world, pods=world)]
        coverage, unnamed, _ = await _read(connection, reads, await _scope(kubeconfig, namespaces))
        world.autoscalers = await _autoscalers(connection, unnamed)
    world.rejecting_nodes.tick(int(time.time()))
    world.sort_nodes()
    return coverage, unnamed


_UNDECIDED: Final = {"fieldSelector": "status.phase!=Pending,status.phase!=Running", "labelSelector": f"!{keys.TEAM}"}


async def read_ended(kubeconfig: Path | None) -> list[dict[str, Any]]:
    """Read some pods that have ended and that Fairgate did not decide; none where they may not be listed."""
    found: list[dict[str, Any]] = []
    with suppress(ClusterError):
        async with await connect(kubeconfig) as connection:
            try:
                return await _ended(connection, "/api/v1/pods")
            except ApiError as error:
                if not error.is_forbidden:
                    raise
            for namespace in await _scope(kubeconfig, ()):
                found += await _ended(connection, f"/api/v1/namespaces/{namespace}/pods")
    return found


async def _ended(connection: ApiConnection, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    selector = _UNDECIDED["fieldSelector"]
    for _ in range(ENDED_READS):
        params = {**_UNDECIDED, "fieldSelector": selector, "limit": ENDED_PODS}
        body = await connection.send("GET", path, action="list pods", params=params)
        try:
            listed = msgspec.json.decode(body, type=_Listed)
        except msgspec.DecodeError as cause:
            raise ClusterError(f"cannot list pods: the response is not a list: {cause}") from cause
        items = listed.items or []
        found += items
        if not listed.metadata.next or not items or not path.endswith("/api/v1/pods"):
            break
        read = dict.fromkeys(str(each.get("metadata", {}).get("namespace", "")) for each in items)
        selector += "".join(f",metadata.namespace!={namespace}" for namespace in read)
    return found


async def read_policy(kubeconfig: Path | None) -> Policy:
    """Read the policy that Fairgate's leader published. Raises ClusterError with what to do instead."""
    async with await connect(kubeconfig) as connection:
        try:
            report = (await read_report(connection, reports.POLICY)).policy
        except ApiError as error:
            if error.is_missing:
                raise ClusterError(
                    "no policy is published in this cluster: give a policy folder by --policy, or start a server"
                ) from error
            if error.is_forbidden:
                raise ClusterError(
                    f"you may not read the policy in force: {ASK}, or give a policy folder by --policy"
                ) from error
            raise
    return published_policy(report)


def policy_of_report(report: Mapping[str, Any]) -> Policy:
    """Return the policy in a Report as the API gives it. Raises ClusterError."""
    try:
        return published_policy(msgspec.convert(report, reports.PolicyReport))
    except msgspec.ValidationError as error:
        raise ClusterError(f"the published policy is not a report: {error}") from error


def published_policy(report: reports.PolicyReport | None) -> Policy:
    """Return the policy that a leader published. Raises ClusterError with what to do instead."""
    if report is None or not report.documents:
        why = report.omitted if report is not None else "the report is empty"
        raise ClusterError(f"the policy in force is not published: {why}; give its folder by --policy")
    try:
        policy = parse({"the published policy": report.documents.encode()}, origin="the published policy")
    except PolicyError as error:
        raise ClusterError(
            f"this version cannot read the published policy; give its folder by --policy: {error.problems[0]}"
        ) from error
    known = report.enforce in set(Enforcement)
    return with_enforcement(policy, enforce=Enforcement(report.enforce) if known else None)


async def _scope(kubeconfig: Path | None, namespaces: Sequence[str]) -> list[str]:
    """Return the namespaces to read if not all may be listed: those given, and the kubeconfig's own."""
    return list(dict.fromkeys([*namespaces, await own_namespace(kubeconfig)]))


class _Read(NamedTuple):
    """What was read, what stands for the rest, and the TeamLedgers; none where they may not be listed."""

    coverage: Coverage
    unnamed: Unnamed
    ledgers: Sequence[Mapping[str, Any]]


async def _read(
    connection: ApiConnection,
    reads: Sequence[tuple[str, Callable[[str], Awaitable[None]]]],
    namespaces: Sequence[str],
    *,
    has_room: bool = True,
) -> _Read:
    """Read every kind as far as allowed; namespaces before pods, which are charged by the namespaces' labels."""
    by_path: dict[str, list[Callable[[str], Awaitable[None]]]] = {}  # pods are read twice, failed ones apart
    for path, read in sorted(reads, key=lambda each: each[0].endswith("/pods")):
        by_path.setdefault(path, []).append(read)
    extents = [await read_permitted(path, _each(same), namespaces=namespaces) for path, same in by_path.items()]
    ledgers = await _ledgers(connection)
    charges = None if ledgers is None else tuple(flight for ledger in ledgers for flight in _charges_of(ledger))
    coverage = Coverage(tuple(extents), has_charges=charges is not None)
    if coverage.has_names:
        return _Read(coverage, Unnamed(charges=charges), ledgers or ())
    is_partial = coverage.is_partial("pods")
    totals = (None if ledgers is None else _totals(ledgers)) if is_partial else ()
    if totals is None and not any(extent.is_all or extent.namespaces for extent in extents):
        raise NothingReadableError(
            "you may not list nodes, pods, namespaces or TeamLedgers: the right to view one namespace shows its pods "
            f"(give its name by --namespace); for what is free, {ASK}"
        )
    room = await _room(connection) if has_room else _Room(why_not="nodes and pods without names are not shown here")
    world = room.world if is_partial or room.world is None else room.world.without_pods
    coverage = replace(coverage, has_totals=totals is not None, room_age=room.age, why_no_room=room.why_not)
    if not is_partial:
        return _Read(coverage, Unnamed((), world, charges), ledgers or ())
    # ledgers name pods of all namespaces; those that are not listed count in the sums, without names
    if charges is not None:
        charges = tuple(flight for flight in charges if coverage.covers("pods", flight.pod.namespace))
    return _Read(coverage, Unnamed(totals or (), world, charges), ())


async def _autoscalers(connection: ApiConnection, unnamed: Unnamed) -> frozenset[Autoscaler]:
    """Return the autoscalers of the cluster; what the leader found of those that the user may not look for."""
    found = await find_autoscalers(connection)
    if not found.why_unsure:
        return found.autoscalers
    room = unnamed.world or (await _room(connection)).world
    return found.autoscalers.union(() if room is None else (each for each in Autoscaler if each in room.autoscalers))


class _Room(NamedTuple):
    """The anonymous world that the leader published, and its age in seconds; or why there is none, "" for no right."""

    world: Nameless | None = None
    age: float | None = None
    why_not: str = ""


async def _room(connection: ApiConnection) -> _Room:
    try:
        report = (await read_report(connection, reports.ROOM)).room
    except ApiError as error:
        if error.is_forbidden:
            return _Room()
        if error.is_missing:
            return _Room(why_not="no server has published it")
        raise
    at = None if report is None else reports.read_at(report.at)
    if report is None or at is None:
        return _Room(why_not="what is published cannot be read")
    age = max(0.0, (connection.server_time or time.time()) - at)
    if age > MAX_ROOM_SECONDS:
        return _Room(why_not=f"it was published {age:.0f} s ago for the last time")
    if (read_room := ask(ROOM)) is None:
        return _Room(why_not="the add-on that reads it is not installed")
    try:
        return _Room(await asyncio.to_thread(read_room, report), age)
    except ValueError as error:
        return _Room(why_not=f"this version cannot read what is published: {error}")


def _each(reads: Sequence[Callable[[str], Awaitable[None]]]) -> Callable[[str], Awaitable[None]]:
    """Return a read that reads one path in several ways."""

    async def read(path: str) -> None:
        for each in reads:
            await each(path)

    return read


async def _ledgers(connection: ApiConnection) -> list[dict[str, Any]] | None:
    """Read all TeamLedgers; None if that is not allowed."""
    try:
        return await list_kind(connection, LEDGERS)
    except ApiError as error:
        if error.is_forbidden:
            return None
        raise


def _totals(ledgers: Iterable[Mapping[str, Any]]) -> tuple[Totals, ...]:
    """Return the usage of teams by their ledgers.

    Those of departments are left out: they repeat what the ledgers of their teams say.
    """
    found = (_totals_of(ledger.get("status") or {}) for ledger in ledgers)
    return tuple(totals for totals in found if department_of(totals.team) is None)


def _charges_of(ledger: Mapping[str, Any]) -> Iterable[InFlightCharge]:
    """Return the charges that a ledger lists; of one that cannot be read, nothing."""
    try:
        return charges_of(ledger).values()
    except ValueError:
        return ()


def _totals_of(status: Mapping[str, Any]) -> Totals:
    def gpus(field: str) -> Units:
        return parse_amount(str(status.get(field) or "0"))

    team = TeamName(str(status.get("team", "")))
    try:
        return Totals(team, gpus("used"), gpus("preemptible"), gpus("waiting"))
    except ValueError as cause:
        raise ClusterError(f"the TeamLedger of team {team} cannot be read: {cause}") from cause
