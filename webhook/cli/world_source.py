"""Reads the world of a command: from a file, or from a live cluster."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import click
import msgspec

from webhook.cli.live_cluster import COMPLETE, Coverage
from webhook.cluster.reads.listing import ReadScope
from webhook.core.model.amounts import plural, span
from webhook.core.model.policy import Mode, Policy
from webhook.core.world.hidden_usage import NOTHING, Unnamed, is_hidden_usage
from webhook.core.world.listed_charges import assume_charges
from webhook.core.world.world import World
from webhook.files import InputError
from webhook.kube.objects import keys
from webhook.kube.pod.existing import EndedPod
from webhook.kube.watched.world_kinds import LIMIT_RANGES, charges_kind, world_kinds
from webhook.kube.workloads.expand import flattened
from webhook.kube.world_file.stream import Unreadable, read_stream
from webhook.kube.world_file.world_file import add_objects, read_world
from webhook.policy.watch import load
from webhook.server.settings import FileWorld, LiveCluster

if TYPE_CHECKING:
    from webhook.cluster.watch.feed import Feed

LIST_SECONDS: Final = 30.0
"""Time limit for listing everything once: 50,000 pods take about ten seconds."""

_POLL_SECONDS: Final = 0.02

Source = FileWorld | LiveCluster
Objects = tuple[Mapping[str, Any], ...]


class WorldError(InputError):
    """The world cannot be read; has the reason."""


class ForbiddenError(WorldError):
    """The user lacks a right to watch the cluster; reading a part of it once may be allowed."""


@dataclass(frozen=True, slots=True)
class View:
    """A world, and what part of its source was read; of a file also the pods with GPUs that have ended."""

    world: World
    coverage: Coverage = COMPLETE
    ended: Sequence[EndedPod] = ()


@dataclass(frozen=True, slots=True)
class WorldObjects:
    """Objects of a world; if some are missing, `unnamed` stands for them.

    `read_at` is when they were read of a cluster, in Unix seconds; a file is as of its latest pod.
    """

    objects: Objects
    coverage: Coverage = COMPLETE
    unnamed: Unnamed = NOTHING
    read_at: int = 0
    noted: set[str] = field(default_factory=set, compare=False)
    """The notes that were printed: several worlds may be built of one reading."""

    @property
    def without_pods(self) -> "WorldObjects":
        """The same without pods, and without what is charged for them."""
        kept = tuple(each for each in self.objects if each.get("kind") not in ("Pod", keys.TEAM_LEDGER))
        anonymous = None if self.unnamed.world is None else self.unnamed.world.without_pods
        return replace(self, objects=kept, unnamed=Unnamed(world=anonymous))


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a world: `source` is "file" or "cluster"; a file has an age."""

    source: str
    name: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class WatchedWorld:
    """A world that is kept up to date; `why_stale` returns why it is out of date, None while it is not."""

    world: World
    why_stale: Callable[[], str | None]
    coverage: Coverage = COMPLETE


def origin_of(source: Source) -> Origin:
    """Describe a source. Raises WorldError if its file does not exist."""
    match source:
        case FileWorld(path=path):
            try:
                return Origin("file", str(path), max(0.0, time.time() - path.stat().st_mtime))
            except OSError as error:
                raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
        case LiveCluster(kubeconfig=kubeconfig):
            return Origin("cluster", str(kubeconfig or "the cluster this pod runs in"), 0.0)
        case _ as never:
            assert_never(never)


def describe_world(origin: Origin, world: World) -> str:
    """Return a line with the source of a world, its age and size."""
    of = (
        f"world {origin.name}, {span(origin.age_seconds)} old"
        if origin.source == "file"
        else f"cluster of {origin.name}"
    )
    pods = sum(1 for pod in world.pods() if not is_hidden_usage(pod))
    return f"{of}: {plural(len(world.fleet), 'node')}, {plural(pods, 'pod')}; policy {world.policy.hash}"


def default_kubeconfig() -> Path | None:
    """Return the kubeconfig that kubectl would use; None if there is none, which means the cluster this pod runs in."""
    candidates = [Path(entry) for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]
    with suppress(RuntimeError):  # a container's user without a name, as on OpenShift, may have no home
        candidates.append(Path.home() / ".kube" / "config")
    return next((path for path in candidates if path.is_file()), None)


def has_cluster(kubeconfig: Path | None) -> bool:
    """Whether there is a cluster to read: of a kubeconfig, or the one that this process runs in."""
    return kubeconfig is not None or default_kubeconfig() is not None or "KUBERNETES_SERVICE_HOST" in os.environ


def read_once(source: Source, policy: Policy, *, namespaces: Sequence[str] = (), keep_nodes: bool = False) -> View:
    """Read the current world once. Raises InputError, as everything here that reads.

    If the user may not list all pods of a cluster, those of `namespaces` and of the kubeconfig's own namespace are
    read, and the usage of teams accounts for the others. If free capacity is unknown, the world has no nodes, unless
    `keep_nodes`, with which nodes may seem emptier than they are.
    """
    match source:
        case FileWorld(path=path):
            world = World(policy)
            return View(world, ended=read_world(world, path).ended)
        case LiveCluster(kubeconfig=kubeconfig):
            return asyncio.run(_read_cluster(kubeconfig, policy, namespaces, keep_nodes=keep_nodes))
        case _ as never:
            assert_never(never)


def read_ended(source: Source, policy: Policy) -> Sequence[EndedPod]:
    """Read GPU pods of a cluster that have ended and that Fairgate did not decide, as far as they are still there.

    Raises WorldError.
    """
    if not isinstance(source, LiveCluster):
        return ()
    from webhook.cli.live_cluster import read_ended  # noqa: PLC0415 - slow to import, and files need none

    found = asyncio.run(read_ended(source.kubeconfig))
    listed = [{**each, "apiVersion": keys.CORE_API, "kind": "Pod"} for each in found]  # items of a list have neither
    return add_objects(World(policy), listed, name=origin_of(source).name, is_live=True).ended


def choose_policy(folder: Path | None, source: object) -> Policy:
    """Load the policy of a folder; without one, the policy in force in the live cluster.

    Raises PolicyError, PolicyUnreadable, WorldError.
    """
    if folder is not None:
        return load(folder)
    if not isinstance(source, LiveCluster):
        raise WorldError("give --policy DIR: only a live cluster has a policy in force")
    from webhook.cli.live_cluster import read_policy  # noqa: PLC0415 - slow to import, and files need none of it

    return asyncio.run(read_policy(source.kubeconfig))


def without_placement(policy: Policy, *, priority_classes: frozenset[str]) -> Policy:
    """Return the policy without node selection, and without PriorityClasses that are not known to exist."""
    known = {tier: name for tier, name in policy.priority_classes.items() if name in priority_classes}
    return replace(policy, placement=replace(policy.placement, mode=Mode.OFF), priority_classes=known)


def other_products(source: Source) -> str:
    """Return which other queues and schedulers a cluster has; empty without any, and for a file. Raises WorldError."""
    if not isinstance(source, LiveCluster):
        return ""
    return asyncio.run(_other_products(source.kubeconfig))


async def _other_products(kubeconfig: Path | None) -> str:
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.reads.installation import read_other_products  # noqa: PLC0415

    async with await connect(kubeconfig) as connection:
        found = await read_other_products(connection)
        return found.text if found.products else ""


@asynccontextmanager
async def watch_world(kubeconfig: Path | None, policy: Policy) -> AsyncIterator[WatchedWorld]:
    """Yield a world that is kept up to date by watches, once everything was listed. Raises WorldError."""
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.watch.feed import AutoscalerWatch, Feed  # noqa: PLC0415

    world = World(policy)
    world.tick(int(time.time()))
    async with await connect(kubeconfig) as connection:
        kinds = (*world_kinds(world, pods=world), charges_kind(world))
        feed = Feed(connection, kinds, autoscalers=AutoscalerWatch(connection, world))
        feeding = asyncio.create_task(feed.run())
        try:
            await _wait_synced(feed)
            world.sort_nodes()
            left_out = feed.left_out()
            missing = tuple([ReadScope(kind, is_all=False) for kind in left_out if kind != keys.TEAM_LEDGERS])
            coverage = Coverage(missing, has_charges=keys.TEAM_LEDGERS not in left_out)
            if not coverage.has_charges:
                assume_charges(world, None)
            yield WatchedWorld(world, feed.readiness, coverage)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def _wait_synced(feed: "Feed") -> None:
    """Wait until everything was listed. Raises WorldError, at once if a right is missing."""
    synced = asyncio.create_task(feed.wait_synced())
    try:
        async with asyncio.timeout(LIST_SECONDS):
            while not synced.done():
                await asyncio.wait({synced}, timeout=_POLL_SECONDS)
                if refused := feed.forbidden:
                    raise ForbiddenError(refused.problem or "")
    except TimeoutError:
        raise WorldError(f"the cluster was not read within {LIST_SECONDS:g} s: {feed.readiness()}") from None
    finally:
        synced.cancel()
        await asyncio.gather(synced, return_exceptions=True)


def read_objects(
    source: Source, *, namespaces: Sequence[str] = (), has_room: bool = True, is_saved: bool = False
) -> WorldObjects:
    """Read the objects of a world with all their fields; flags as in live_cluster. Raises WorldError."""
    match source:
        case FileWorld(path=path):
            return WorldObjects(tuple(_objects_of_file(path)))
        case LiveCluster(kubeconfig=kubeconfig):
            return asyncio.run(_objects_of_cluster(kubeconfig, namespaces, has_room=has_room, is_saved=is_saved))
        case _ as never:
            assert_never(never)


def limit_ranges(source: Source, *, namespaces: Sequence[str] = ()) -> tuple[Mapping[str, Any], ...]:
    """Return the LimitRanges of a world, as far as they may be read: they give devices to pods. Raises WorldError."""
    match source:
        case FileWorld(path=path):
            return tuple(each for each in _objects_of_file(path) if each.get("kind") == LIMIT_RANGES.kind)
        case LiveCluster(kubeconfig=kubeconfig):
            from webhook.cli.live_cluster import read_limit_ranges  # noqa: PLC0415 - slow to import, and files need none of it

            return tuple(asyncio.run(read_limit_ranges(kubeconfig, namespaces)))
        case _ as never:
            assert_never(never)


def world_of(found: WorldObjects, policy: Policy, *, name: str, keep_nodes: bool = False) -> World:
    """Build a world from objects, as `read_once` does. Raises WorldError."""
    objects = found.objects
    if not found.coverage.is_room_known and not keep_nodes:
        objects = tuple(each for each in objects if each.get("kind") != "Node")
        policy = without_placement(policy, priority_classes=_priority_classes(objects))
    world = World(policy)
    world.stages.read_at = found.read_at
    is_live = bool(found.read_at)
    if (problems := add_objects(world, objects, name=name, is_live=is_live).problems) and not found.noted:
        note = f"fairgate: {plural(len(problems), 'object')} could not be read: {problems[0]}"
        found.noted.add(note)
        click.echo(note, err=True)
    if found.read_at:
        world.rejecting_nodes.tick(found.read_at)
    _fill(world, found.unnamed)
    return world


def _priority_classes(objects: Objects) -> frozenset[str]:
    named = (each["metadata"]["name"] for each in objects if each.get("kind") == "PriorityClass")
    return frozenset(map(str, named))


async def _read_cluster(
    kubeconfig: Path | None, policy: Policy, namespaces: Sequence[str], *, keep_nodes: bool
) -> View:
    """List everything once, without watching it."""
    from webhook.cli.live_cluster import read_world as read_live  # noqa: PLC0415 - slow to import, and files need none of it

    world = World(policy)
    coverage, unnamed = await read_live(kubeconfig, world, namespaces)
    if not coverage.is_room_known and not keep_nodes:
        for name in [node.name for node in world.fleet.nodes()]:
            world.remove_node(name)
        world.set_policy(without_placement(policy, priority_classes=frozenset(world.priority_classes)))
    _fill(world, unnamed)
    return View(world, coverage)


def _fill(world: World, unnamed: Unnamed) -> None:
    try:
        unnamed.fill(world)
    except ValueError as error:
        raise WorldError(f"what Fairgate published of the cluster cannot be used: {error}") from error


def _objects_of_file(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
    if (listed := _json(content)) is not None:
        yield from flattened((listed,))
        return
    for document in read_stream(content):
        if isinstance(document, Unreadable):
            raise WorldError(f"{path}:{document.line}: not valid YAML: {document.problem}")
        yield from flattened((document.value,))


def _json(content: bytes) -> object:
    """Return the value of a JSON file, which is read eight times faster than as YAML; None for anything else."""
    if content.lstrip()[:1] != b"{":
        return None
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None


async def _objects_of_cluster(
    kubeconfig: Path | None, namespaces: Sequence[str], *, has_room: bool, is_saved: bool
) -> WorldObjects:
    from webhook.cli.live_cluster import read_objects as read_live  # noqa: PLC0415 - slow to import, and files need none of it

    found = await read_live(kubeconfig, namespaces, has_room=has_room, is_saved=is_saved)
    return WorldObjects(found.objects, found.coverage, found.unnamed, read_at=int(time.time()))
