"""The world that a review judges against: from a file, from a live cluster that is only read, or empty."""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from webhook.cli.review.collect import Collected
from webhook.cli.review.imagined import without_nodes
from webhook.cli.review.judged import WorldFacts
from webhook.core.policy import Policy
from webhook.core.world import World
from webhook.kube.worldfile import WorldFileError, read_world
from webhook.server.kinds import world_kinds
from webhook.server.settings import LiveCluster, WorldFile

LIST_SECONDS: Final = 30.0
"""How long a cluster may take until everything was listed once: 50,000 pods take some ten seconds."""


class WorldError(Exception):
    """There is no world to judge against; says why."""


@dataclass(frozen=True, slots=True)
class Empty:
    """No nodes and no pods: the limits of policy, against nothing used."""


WorldSource = WorldFile | LiveCluster | Empty


def open_world(source: WorldSource, policy: Policy, collected: Collected) -> tuple[World, WorldFacts]:
    """Make the world, with the namespaces and PriorityClasses that the manifests bring. Raises WorldError."""
    age: float | None = None
    match source:
        case WorldFile(path=path):
            world, age = _from_file(path, policy)
            kind, name = "file", str(path)
        case LiveCluster(kubeconfig=kubeconfig):
            world, age = asyncio.run(_from_cluster(kubeconfig, policy)), 0.0
            kind, name = "cluster", str(kubeconfig or "the cluster this pod runs in")
        case Empty():
            brought = frozenset(brought.name for brought in collected.priority_classes)
            world, kind, name = World(without_nodes(policy, priority_classes=brought)), "empty", ""
        case _ as never:
            assert_never(never)
    facts = WorldFacts(kind, name, age, len(world.fleet), sum(1 for _ in world.pods()), policy.hash)
    _bring(collected, world)
    return world, facts


def default_kubeconfig() -> Path | None:
    """Find the kubeconfig as kubectl would; None where there is none, which means the cluster this pod runs in."""
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    candidates: Iterable[Path] = (Path(entry) for entry in (*listed, str(Path.home() / ".kube" / "config")) if entry)
    return next((path for path in candidates if path.is_file()), None)


def _from_file(path: Path, policy: Policy) -> tuple[World, float]:
    world = World(policy)
    try:
        read_world(path, policy.resources).fill(world)
        age = max(0.0, time.time() - path.stat().st_mtime)
    except WorldFileError as error:
        raise WorldError(str(error)) from error
    return world, age


async def _from_cluster(kubeconfig: Path | None, policy: Policy) -> World:
    """List everything once and let go: the world stays as it was at that moment."""
    from webhook.cluster.client import connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.errors import ClusterError  # noqa: PLC0415
    from webhook.cluster.feed import Feed  # noqa: PLC0415

    world = World(policy)
    try:
        async with await connect(kubeconfig) as connection:
            feed = Feed(connection, world_kinds(world, pods=world))
            feeding = asyncio.create_task(feed.run())
            try:
                async with asyncio.timeout(LIST_SECONDS):
                    await feed.wait_warm()
            except TimeoutError:
                raise WorldError(f"the cluster was not read within {LIST_SECONDS:g} s: {feed.readiness()}") from None
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
    except ClusterError as error:
        raise WorldError(str(error)) from error
    world.arrange()
    return world


def _bring(collected: Collected, world: World) -> None:
    """Add what the manifests would create: new labels of a namespace come on top of those that it has."""
    for facts in collected.namespaces:
        known = world.tenancy(facts.name).facts
        world.set_namespace(
            type(facts)(facts.name, {**known.labels, **facts.labels}, {**known.annotations, **facts.annotations})
        )
    for triple in collected.priority_classes:
        world.set_priority_class(triple)
