"""The world that a command looks at: a file, or a live cluster that is only read."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from webhook.cli.coverage import COMPLETE, Coverage
from webhook.cli.formatting import age, plural
from webhook.cluster.watch.world_kinds import world_kinds
from webhook.core.model.policy import Mode, Policy
from webhook.core.world.hidden_usage import Totals, add_hidden_usage, is_hidden_usage
from webhook.core.world.world import World
from webhook.kube.workloads.expand import flattened
from webhook.kube.world_file.stream import Unreadable, read_stream
from webhook.kube.world_file.world_file import WorldFileError, parse_world, read_world
from webhook.policy.load import load
from webhook.server.settings import LiveCluster, WorldFile

if TYPE_CHECKING:
    from webhook.cluster.watch.feed import Feed

LIST_SECONDS: Final = 30.0
"""How long a cluster may take until everything was listed once: 50,000 pods take some ten seconds."""

_LOOK_SECONDS: Final = 0.02

Source = WorldFile | LiveCluster
Objects = tuple[Mapping[str, Any], ...]


class WorldError(Exception):
    """There is no world to look at; says why."""


class ForbiddenError(WorldError):
    """The user lacks a right to follow the cluster; to read a part of it once may be allowed."""


@dataclass(frozen=True, slots=True)
class View:
    """A world, and how much of its source it shows."""

    world: World
    coverage: Coverage = COMPLETE


@dataclass(frozen=True, slots=True)
class Reading:
    """Objects that were read; where pods are missing, `totals` are the sums of teams."""

    objects: Objects
    coverage: Coverage = COMPLETE
    totals: tuple[Totals, ...] = ()

    @property
    def without_pods(self) -> "Reading":
        """The same without pods, and without what stands for those that were not read."""
        kept = tuple(each for each in self.objects if each.get("kind") != "Pod")
        return replace(self, objects=kept, totals=())


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a world comes from: `source` is file or cluster; a file has an age."""

    source: str
    name: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Followed:
    """A world that goes on; `why_stale` tells why it should not be trusted any more, None while all is well."""

    world: World
    why_stale: Callable[[], str | None]


def origin_of(source: Source) -> Origin:
    """Name a source. Raises WorldError where its file is not there."""
    match source:
        case WorldFile(path=path):
            try:
                return Origin("file", str(path), max(0.0, time.time() - path.stat().st_mtime))
            except OSError as error:
                raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
        case LiveCluster(kubeconfig=kubeconfig):
            return Origin("cluster", str(kubeconfig or "the cluster this pod runs in"), 0.0)
        case _ as never:
            assert_never(never)


def seen(origin: Origin, world: World) -> str:
    """Say what was looked at, and how old it is."""
    of = (
        f"world {origin.name}, {age(origin.age_seconds)} old"
        if origin.source == "file"
        else f"cluster of {origin.name}"
    )
    pods = sum(1 for pod in world.pods() if not is_hidden_usage(pod))
    return f"{of}: {plural(len(world.fleet), 'node')}, {plural(pods, 'pod')}; policy {world.policy.hash}"


def default_kubeconfig() -> Path | None:
    """Find the kubeconfig as kubectl would; None where there is none, which means the cluster this pod runs in."""
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    candidates: Iterable[Path] = (Path(entry) for entry in (*listed, str(Path.home() / ".kube" / "config")) if entry)
    return next((path for path in candidates if path.is_file()), None)


def read_once(source: Source, policy: Policy, *, namespaces: Sequence[str] = (), keep_nodes: bool = False) -> View:
    """Make the world as it is at this moment. Raises WorldError.

    Where the user may not list the pods of a cluster, those of `namespaces` and of the kubeconfig's own namespace are
    read, and the sums of teams make up for the others. Where free room is not known, no node is in the world, unless
    to `keep_nodes` that may be full.
    """
    match source:
        case WorldFile(path=path):
            world = World(policy)
            try:
                read_world(path, policy.resources).fill(world)
            except WorldFileError as error:
                raise WorldError(str(error)) from error
            return View(world)
        case LiveCluster(kubeconfig=kubeconfig):
            return asyncio.run(_read_cluster(kubeconfig, policy, namespaces, keep_nodes=keep_nodes))
        case _ as never:
            assert_never(never)


def choose_policy(folder: Path | None, source: object) -> Policy:
    """Load the policy of a folder; without one, that in force in the cluster which is looked at.

    Raises PolicyError, PolicyUnreadable, WorldError.
    """
    if folder is not None:
        return load(folder)
    if not isinstance(source, LiveCluster):
        raise WorldError("give --policy DIR: only a live cluster says which policy is in force")
    from webhook.cli.live_cluster import read_policy  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415

    try:
        return asyncio.run(read_policy(source.kubeconfig))
    except ClusterError as error:
        raise WorldError(str(error)) from error


def without_placement(policy: Policy, *, priority_classes: frozenset[str]) -> Policy:
    """Take from a policy what needs a cluster: the choice of nodes, and PriorityClasses that are not known to exist."""
    known = {tier: name for tier, name in policy.priority_classes.items() if name in priority_classes}
    return replace(policy, placement=replace(policy.placement, mode=Mode.OFF), priority_classes=known)


@asynccontextmanager
async def follow(kubeconfig: Path | None, policy: Policy) -> AsyncIterator[Followed]:
    """Give a world that a cluster feeds until the end of the block, once everything was listed. Raises WorldError."""
    from webhook.cluster.api.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.watch.feed import Feed  # noqa: PLC0415

    world = World(policy)
    try:
        async with await connect(kubeconfig) as connection:
            feed = Feed(connection, world_kinds(world, pods=world))
            feeding = asyncio.create_task(feed.run())
            try:
                await _warm(feed)
                world.sort_nodes()
                yield Followed(world, feed.readiness)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    except ClusterError as error:
        raise WorldError(str(error)) from error


async def _warm(feed: "Feed") -> None:
    """Wait for the first lists; a lack of rights ends that at once. Raises WorldError."""
    warm = asyncio.create_task(feed.wait_synced())
    try:
        async with asyncio.timeout(LIST_SECONDS):
            while not warm.done():
                await asyncio.wait({warm}, timeout=_LOOK_SECONDS)
                if refused := next((watch for watch in feed.watches if watch.is_forbidden), None):
                    raise ForbiddenError(refused.problem or "")
    except TimeoutError:
        raise WorldError(f"the cluster was not read within {LIST_SECONDS:g} s: {feed.readiness()}") from None
    finally:
        warm.cancel()
        await asyncio.gather(warm, return_exceptions=True)


def read_objects(source: Source, *, namespaces: Sequence[str] = ()) -> Reading:
    """Read the objects of a world as they are, all fields of theirs. Raises WorldError."""
    match source:
        case WorldFile(path=path):
            return Reading(tuple(_objects_of_file(path)))
        case LiveCluster(kubeconfig=kubeconfig):
            return asyncio.run(_objects_of_cluster(kubeconfig, namespaces))
        case _ as never:
            assert_never(never)


def world_of(found: Reading, policy: Policy, *, name: str, keep_nodes: bool = False) -> World:
    """Make a world of objects that were read before, as `read_once` does. Raises WorldError."""
    objects = found.objects
    if not found.coverage.is_room_known and not keep_nodes:
        objects = tuple(each for each in objects if each.get("kind") != "Node")
        policy = without_placement(policy, priority_classes=_priority_classes(objects))
    world = World(policy)
    listed = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
    try:
        parse_world(listed, policy.resources, name=name).fill(world)
    except WorldFileError as error:
        raise WorldError(str(error)) from error
    add_hidden_usage(world, found.totals)
    return world


def _priority_classes(objects: Objects) -> frozenset[str]:
    named = (each["metadata"]["name"] for each in objects if each.get("kind") == "PriorityClass")
    return frozenset(map(str, named))


async def _read_cluster(
    kubeconfig: Path | None, policy: Policy, namespaces: Sequence[str], *, keep_nodes: bool
) -> View:
    """List everything once and let go: the world stays as it was at that moment."""
    from webhook.cli.live_cluster import read_world as read_live  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415

    world = World(policy)
    try:
        coverage, totals = await read_live(kubeconfig, world, namespaces)
    except ClusterError as error:
        raise WorldError(str(error)) from error
    if not coverage.is_room_known and not keep_nodes:
        for name in [node.name for node in world.fleet.nodes()]:
            world.remove_node(name)
        world.set_policy(without_placement(policy, priority_classes=frozenset(world.priority_classes)))
    add_hidden_usage(world, totals)
    return View(world, coverage)


def _objects_of_file(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
    for document in read_stream(content):
        if isinstance(document, Unreadable):
            raise WorldError(f"{path}:{document.line}: not valid YAML: {document.problem}")
        yield from flattened((document.value,))


async def _objects_of_cluster(kubeconfig: Path | None, namespaces: Sequence[str]) -> Reading:
    from webhook.cli.live_cluster import read_objects as read_live  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415

    try:
        found = await read_live(kubeconfig, namespaces)
    except ClusterError as error:
        raise WorldError(str(error)) from error
    return Reading(found.objects, found.coverage, found.totals)
