"""A minimal sink, its struct, and a pace with short timeouts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from tests.cluster.support.fake_api import FakeApi
from webhook.cluster.watch.event_stream import Pace
from webhook.cluster.watch.watch import Watch
from webhook.kube.watched.kinds import WatchedKind

PODS = "/api/v1/pods"
FAST = Pace(
    page=3,
    list_timeout=1.0,
    watch_timeout=1.0,
    initial_backoff=0.01,
    max_backoff=0.05,
    settled=0.25,
    missing_api_backoff=0.1,
)


class Meta(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""


class Spec(msgspec.Struct):
    gpus: int


class Thing(msgspec.Struct):
    metadata: Meta
    spec: Spec


@dataclass
class Book:
    """Keeps GPUs by UID. `log` has every call in order."""

    held: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def apply(self, thing: Thing) -> bool:
        if thing.spec.gpus < 0:
            raise ValueError("negative")
        if thing.spec.gpus:
            self.held[thing.metadata.uid] = thing.spec.gpus
            self.log.append(f"set {thing.metadata.name}={thing.spec.gpus}")
        return thing.spec.gpus > 0

    def remove(self, uid: str) -> None:
        del self.held[uid]  # a removal of what was never set, or twice, is a bug
        self.log.append(f"remove {uid}")

    def kind(self, *, path: str = PODS, is_optional: bool = False, needs_right: bool = True) -> WatchedKind[Thing]:
        return WatchedKind(
            name=path.rsplit("/", 1)[1],
            path=path,
            item=Thing,
            key=lambda t: f"{t.metadata.namespace}/{t.metadata.name}".lstrip("/"),
            handle=lambda t: t.metadata.uid,
            apply=self.apply,
            remove=self.remove,
            params={"fieldSelector": "status.phase!=Succeeded"},
            is_optional=is_optional,
            needs_right=needs_right,
        )


def fill(api: FakeApi, count: int) -> None:
    """Put pods into the cluster, with one to eight GPUs each."""
    for number in range(count):
        api.put(PODS, f"pod-{number:04}", namespace="vision", spec={"gpus": 1 + number % 8})


def unexpected(error: Exception) -> None:
    """Receive what no test provokes unless it says so."""
    raise error


def truth(api: FakeApi, path: str = PODS) -> dict[str, int]:
    return {
        o["metadata"]["uid"]: o["spec"]["gpus"]
        for o in api.objects[path].values()
        if o["spec"]["gpus"] > 0 and o.get("status", {}).get("phase") != "Succeeded"
    }


async def until(is_so: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Wait until a condition holds; pytest shows the line of the call if it never does.

    It looks less often the longer it takes: of minutes in virtual time each look takes real time.
    """
    pause = 0.002
    async with asyncio.timeout(seconds):
        while not is_so():  # what is waited for is not ours to signal
            await asyncio.sleep(pause)
            pause = min(1.1 * pause, 0.25)


@asynccontextmanager
async def running(watch: Watch[Thing]) -> AsyncIterator[asyncio.Task[None]]:
    """Run a watch until the block ends; it must end by being cancelled, not by itself."""
    task = asyncio.create_task(watch.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def write_kubeconfig(path: Path, server: str, *, cluster: dict[str, object] | None = None, **user: object) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server} | (cluster or {})}],
        "users": [{"name": "me", "user": user or {"token": "good"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path
