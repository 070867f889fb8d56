"""The world that a command looks at: a file, or a live cluster that is only read."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from webhook.cli.words import age, plural
from webhook.core.policy import Policy
from webhook.core.world import World
from webhook.kube.stream import Unreadable, read_stream
from webhook.kube.workloads.expand import flattened
from webhook.kube.worldfile import WorldFileError, parse_world, read_world
from webhook.kube.worldobjects import WORLD_KINDS
from webhook.server.kinds import world_kinds
from webhook.server.settings import LiveCluster, WorldFile

LIST_SECONDS: Final = 30.0
"""How long a cluster may take until everything was listed once: 50,000 pods take some ten seconds."""

Source = WorldFile | LiveCluster
Objects = tuple[Mapping[str, Any], ...]


class WorldError(Exception):
    """There is no world to look at; says why."""


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
    pods = sum(1 for _ in world.pods())
    return f"{of}: {plural(len(world.fleet), 'node')}, {plural(pods, 'pod')}; policy {world.policy.hash}"


def default_kubeconfig() -> Path | None:
    """Find the kubeconfig as kubectl would; None where there is none, which means the cluster this pod runs in."""
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    candidates: Iterable[Path] = (Path(entry) for entry in (*listed, str(Path.home() / ".kube" / "config")) if entry)
    return next((path for path in candidates if path.is_file()), None)


def read_once(source: Source, policy: Policy) -> World:
    """Make the world as it is at this moment. Raises WorldError."""
    match source:
        case WorldFile(path=path):
            world = World(policy)
            try:
                read_world(path, policy.resources).fill(world)
            except WorldFileError as error:
                raise WorldError(str(error)) from error
            return world
        case LiveCluster(kubeconfig=kubeconfig):
            return asyncio.run(_read_cluster(kubeconfig, policy))
        case _ as never:
            assert_never(never)


@asynccontextmanager
async def follow(kubeconfig: Path | None, policy: Policy) -> AsyncIterator[Followed]:
    """Give a world that a cluster feeds until the end of the block, once everything was listed. Raises WorldError."""
    from webhook.cluster.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.feed import Feed  # noqa: PLC0415

    world = World(policy)
    try:
        async with await connect(kubeconfig) as connection:
            feed = Feed(connection, world_kinds(world, pods=world))
            feeding = asyncio.create_task(feed.run())
            try:
                try:
                    async with asyncio.timeout(LIST_SECONDS):
                        await feed.wait_warm()
                except TimeoutError:
                    why = f"the cluster was not read within {LIST_SECONDS:g} s: {feed.readiness()}"
                    raise WorldError(why) from None
                world.arrange()
                yield Followed(world, feed.readiness)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    except ClusterError as error:
        raise WorldError(str(error)) from error


def read_objects(source: Source) -> Objects:
    """Read the objects of a world as they are, all fields of theirs. Raises WorldError."""
    match source:
        case WorldFile(path=path):
            return tuple(_objects_of_file(path))
        case LiveCluster(kubeconfig=kubeconfig):
            return tuple(asyncio.run(_objects_of_cluster(kubeconfig)))
        case _ as never:
            assert_never(never)


def world_of(found: Objects, policy: Policy, *, name: str) -> World:
    """Make a world of objects that were read before. Raises WorldError."""
    world = World(policy)
    listed = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": found})
    try:
        parse_world(listed, policy.resources, name=name).fill(world)
    except WorldFileError as error:
        raise WorldError(str(error)) from error
    return world


async def _read_cluster(kubeconfig: Path | None, policy: Policy) -> World:
    """List everything once and let go: the world stays as it was at that moment."""
    async with follow(kubeconfig, policy) as followed:
        return followed.world


def _objects_of_file(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror or error}") from error
    for document in read_stream(content):
        if isinstance(document, Unreadable):
            raise WorldError(f"{path}:{document.line}: not valid YAML: {document.problem}")
        yield from flattened((document.value,))


async def _objects_of_cluster(kubeconfig: Path | None) -> list[Mapping[str, Any]]:
    from webhook.cluster.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.listing import list_objects  # noqa: PLC0415

    found: list[Mapping[str, Any]] = []
    try:
        async with await connect(kubeconfig) as connection:
            for kind in WORLD_KINDS:
                found += await list_objects(connection, kind)
    except ClusterError as error:
        raise WorldError(str(error)) from error
    return found
