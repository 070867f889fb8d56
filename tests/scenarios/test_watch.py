"""The watch against a real API server: how it lists, and the failures that it survives without losing a pod."""

import asyncio
import base64
import json
import signal
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import yaml

from tests.cluster.support.stores import running, until
from tests.control_plane.minors import needs
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_namespace
from tests.scenarios.relay import Relay
from webhook.cluster.api.client import connect
from webhook.cluster.watch.event_stream import Pace
from webhook.cluster.watch.feed import Feed
from webhook.kube.objects import objects
from webhook.kube.watched.kinds import WatchedKind

pytestmark = pytest.mark.cluster

QUICK = Pace(page=2, initial_backoff=0.1, max_backoff=1.0, watch_timeout=3.0, settled=60.0)
SECONDS = 60  # other tests may use both cores


@dataclass
class Names:
    """Keeps the pods of one namespace by UID."""

    namespace: str
    held: dict[str, str] = field(default_factory=dict)

    def kind(self) -> WatchedKind[objects.Pod]:
        def apply(found: objects.Pod) -> bool:
            self.held[found.metadata.uid] = found.metadata.name
            return True

        return WatchedKind(
            name="pods",
            path=f"/api/v1/namespaces/{self.namespace}/pods",
            item=objects.Pod,
            key=lambda found: found.metadata.name,
            handle=lambda found: found.metadata.uid,
            apply=apply,
            remove=self.held.pop,
        )

    def is_true(self, cluster) -> bool:
        there = {found["metadata"]["uid"]: found["metadata"]["name"] for found in list_pods(cluster, self.namespace)}
        return self.held == there


async def make_pods(cluster, namespace, *names):
    for name in names:
        await asyncio.to_thread(create_pod, cluster, namespace, pod(name))


async def delete_pod(cluster, namespace, name):
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    await asyncio.to_thread(cluster.api.delete, path, {"gracePeriodSeconds": 0})


async def restart_api_server(cluster):
    await asyncio.to_thread(cluster.restart, "kube-apiserver", number=signal.SIGKILL)


@asynccontextmanager
async def feeding(cluster, names, *, kubeconfig=None):
    """Feed through a relay until the block ends."""
    async with Relay(cluster.ports.api_server).serving() as relay:
        document = yaml.safe_load((kubeconfig or cluster.kubeconfig).read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
        path = cluster.folder / f"kubeconfig-{relay.port}"
        path.write_text(yaml.safe_dump(document))
        async with await connect(path) as connection:
            feed = Feed(connection, (names.kind(),), pace=QUICK, stale_seconds=2.0)
            async with running(feed):
                await until(lambda: feed.why_not_synced() is None, seconds=SECONDS)
                yield feed, relay


@pytest.fixture
def names(cluster):
    return Names(make_namespace(cluster))


async def settles(cluster, names, watch):
    await until(lambda: names.is_true(cluster) and watch.problem is None, seconds=SECONDS)


@needs("1.32", "before, lists are not streamed by default")
async def test_a_list_is_streamed_and_needs_only_the_verb_watch(cluster, names):
    await make_pods(cluster, names.namespace, "a", "b", "c")
    robot = cluster.service_account_kubeconfig(names.namespace)
    rule = ("--verb=watch", "--resource=pods", "-n", names.namespace)
    await asyncio.to_thread(cluster.kubectl, "create", "role", "watcher", *rule)
    subject = f"--serviceaccount={names.namespace}:default"
    bind = ("create", "rolebinding", "watcher", "--role=watcher", subject, "-n", names.namespace)
    await asyncio.to_thread(cluster.kubectl, *bind)
    async with feeding(cluster, names, kubeconfig=robot) as (feed, _):
        (watch,) = feed.watches
        assert sorted(names.held.values()) == ["a", "b", "c"]
        assert watch.reached > 0
        await make_pods(cluster, names.namespace, "d")
        await settles(cluster, names, watch)


async def test_a_server_without_streams_is_listed_by_pages(start_control_plane):
    gates = ("--feature-gates=WatchList=false",)
    cluster = await asyncio.to_thread(start_control_plane, extra_args={"kube-apiserver": gates})
    names = Names(await asyncio.to_thread(make_namespace, cluster))
    await make_pods(cluster, names.namespace, "a", "b", "c", "d", "e")
    async with feeding(cluster, names) as (feed, _):
        (watch,) = feed.watches
        assert sorted(names.held.values()) == ["a", "b", "c", "d", "e"]
        await delete_pod(cluster, names.namespace, "b")
        await settles(cluster, names, watch)
        assert watch.relists == 0


async def test_a_broken_connection_resumes_at_its_version(cluster, names):
    await make_pods(cluster, names.namespace, "a", "b")
    async with feeding(cluster, names) as (feed, relay):
        (watch,) = feed.watches
        relay.cut()
        await make_pods(cluster, names.namespace, "c")
        await delete_pod(cluster, names.namespace, "a")
        await until(lambda: watch.problem, seconds=SECONDS)
        relay.mend()
        await settles(cluster, names, watch)
        assert watch.relists == 0


async def test_a_silent_watch_is_unready_until_it_recovers(cluster, names):
    """A half-open connection: nothing arrives, and no side closes it."""
    await make_pods(cluster, names.namespace, "a")
    async with feeding(cluster, names) as (feed, relay):
        (watch,) = feed.watches
        assert feed.readiness() is None
        relay.silence()
        await make_pods(cluster, names.namespace, "b")
        await until(lambda: "did not respond for" in (watch.problem or ""), seconds=SECONDS)
        assert "no event from the API server for" in feed.readiness()
        relay.mend()
        await settles(cluster, names, watch)
        assert feed.readiness() is None


async def test_a_restarted_api_server_is_watched_again(cluster, names):
    await make_pods(cluster, names.namespace, "a", "b")
    async with feeding(cluster, names) as (feed, _):
        (watch,) = feed.watches
        await restart_api_server(cluster)
        await make_pods(cluster, names.namespace, "c")
        await delete_pod(cluster, names.namespace, "b")
        await settles(cluster, names, watch)


def compact(cluster) -> None:
    """Have etcd compact every version but the newest."""

    def ask(path: str, body: object) -> dict:
        url = f"http://127.0.0.1:{cluster.ports.etcd}/v3/kv/{path}"
        request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    newest = ask("range", {"key": base64.b64encode(b"any").decode()})["header"]["revision"]
    ask("compaction", {"revision": newest, "physical": True})


async def test_a_compacted_version_causes_a_list_and_nothing_is_lost(cluster, names):
    await make_pods(cluster, names.namespace, "a", "b", "c")
    async with feeding(cluster, names) as (feed, relay):
        (watch,) = feed.watches
        relay.cut()
        reached = watch.reached
        await make_pods(cluster, names.namespace, "d")
        await delete_pod(cluster, names.namespace, "a")
        await asyncio.to_thread(compact, cluster)
        await restart_api_server(cluster)  # its own memory of the versions goes as well
        relay.mend()
        await settles(cluster, names, watch)
        assert watch.relists == 1
        assert watch.reached > reached
