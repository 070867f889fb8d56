"""The four kinds together, with the core's own types, and their readiness."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from tests.cluster.support.fake_api import Answer, End, ErrorEvent, Silent
from tests.cluster.support.stores import FAST, until
from webhook.cluster.api.client import CONNECT_SECONDS, RestoredError
from webhook.cluster.watch.event_stream import DEFAULT_PACE
from webhook.cluster.watch.feed import STALE_SECONDS, Feed
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Resident
from webhook.kube.watched import world_kinds
from webhook.kube.watched.kinds import pod_kind

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass
class RecordingSink:
    nodes: dict = field(default_factory=dict)
    pods: dict = field(default_factory=dict)
    namespaces: dict = field(default_factory=dict)
    classes: dict = field(default_factory=dict)

    def set_node(self, node):
        self.nodes[node.name] = node

    def remove_node(self, name):
        del self.nodes[name]

    def set_pod(self, pod):
        self.pods[pod.uid] = pod

    def remove_pod(self, uid):
        del self.pods[uid]

    def set_namespace(self, facts):
        self.namespaces[facts.name] = facts

    def remove_namespace(self, name):
        del self.namespaces[name]

    def set_priority_class(self, triple):
        self.classes[triple.name] = triple

    def remove_priority_class(self, name):
        del self.classes[name]

    @property
    def names(self):
        pods = [pod.name for pod in self.pods.values()]
        return [sorted(names) for names in (self.nodes, pods, self.namespaces, self.classes)]


def of(gpus):
    """Return the parts of a pod of so many GPUs."""
    return {"metadata": {"labels": {"gpus": str(gpus)}}, "spec": {"containers": []}}


def to_resident(pod):
    meta = pod.metadata
    gpus = int(meta.labels["gpus"])
    if not gpus:
        return None
    demand = Demand(gpus=gpus, devices=(), requests=())
    return Resident(meta.uid, meta.namespace, meta.name, demand, None, None, None, None)


def kinds_of(sink):
    return (
        world_kinds.NODES.watched(sink),
        pod_kind(sink, to_resident),
        world_kinds.NAMESPACES.watched(sink),
        world_kinds.PRIORITY_CLASSES.watched(sink),
    )


@asynccontextmanager
async def feeding(feed):
    task = asyncio.create_task(feed.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def sink():
    return RecordingSink()


@pytest.fixture
def feed(connection, sink):
    return Feed(connection, kinds_of(sink), pace=FAST)


@pytest.fixture
def cluster(api):
    api.put(NODES, "node-1")
    api.put(NAMESPACES, "vision")
    api.put(PODS, "train", namespace="vision", **of(2))
    api.put(PODS, "web", namespace="vision", **of(0))
    api.put(PODS, "old", namespace="vision", **of(8), status={"phase": "Failed"})
    api.put(PRIORITY_CLASSES, "high", value=100)
    return api


async def test_every_kind_reaches_the_sink_and_leaves_it(cluster, feed, sink):
    async with feeding(feed):
        await until(lambda: feed.readiness() is None)
        assert sink.names == [["node-1"], ["train"], ["vision"], ["high"]]
        assert sink.classes["high"].value == 100
        cluster.put(NODES, "node-2")
        cluster.put(PODS, "train", namespace="vision", **of(0))
        cluster.put(PODS, "second", namespace="vision", **of(1))
        await until(lambda: sink.names == [["node-1", "node-2"], ["second"], ["vision"], ["high"]])
        cluster.put(PODS, "second", namespace="vision", **of(1), status={"phase": "Succeeded"})
        cluster.delete(NODES, "node-1")
        cluster.delete(NAMESPACES, "vision")
        cluster.delete(PRIORITY_CLASSES, "high")
        await until(lambda: sink.names == [["node-2"], [], [], []])
    assert not any(asked.verb == "page" for asked in cluster.asked)


async def test_a_relist_of_one_kind_leaves_the_others_alone(cluster, feed, sink):
    async with feeding(feed):
        await until(lambda: feed.readiness() is None and len(cluster.watchers) == 4)
        before = sink.names
        cluster.disturb(ErrorEvent(410))
        await until(lambda: [watch.relists for watch in feed.watches] == [1, 1, 1, 1])
    assert sink.names == before


async def test_a_process_with_a_memory_of_its_own_ends_once_etcd_was_restored(cluster, feed):
    async with feeding(feed):
        ending = asyncio.create_task(feed.end_if_restored())
        await until(lambda: feed.readiness() is None and len(cluster.watchers) == 4)
        cluster.disturb(End())
        await until(lambda: cluster.count("look") >= 4)
        assert not ending.done(), "a watch that ended is opened again"
        await until(lambda: len(cluster.watchers) == 4)
        cluster.restore(50)
        with pytest.raises(RestoredError, match="at resourceVersion 50, and 106 was seen before"):
            await ending


async def test_not_ready_before_every_kind_was_listed(cluster, feed):
    assert "nodes: not listed yet" in feed.readiness()
    cluster.missing.add(PRIORITY_CLASSES)
    async with feeding(feed):
        await until(lambda: "404" in (feed.readiness() or ""))
        await until(lambda: all(watch.synced for watch in feed.watches[:3]))
        want = "priorityclasses: not listed yet: cannot watch priorityclasses: 404 configured to answer 404"
        assert feed.readiness() == want


async def test_not_ready_when_a_watch_is_silent(cluster, connection, sink):
    cluster.bookmark_seconds = 0.03
    feed = Feed(connection, kinds_of(sink), pace=FAST, stale_seconds=0.05)
    async with feeding(feed):
        await until(lambda: feed.readiness() is None and len(cluster.watchers) == 4)
        cluster.always["watch"] = Answer(500)
        cluster.disturb(Silent())
        await until(lambda: (feed.readiness() or "").count("no event from the API server for") == 4)
        await until(lambda: "cannot watch pods: 500" in (feed.readiness() or ""))
        cluster.always.clear()
        await until(lambda: feed.readiness() is None)


async def test_a_missing_bookmark_leaves_it_ready(cluster, connection, sink):
    """A watch without data is opened again before its silence counts as stale."""
    pace = replace(FAST, watch_timeout=0.5)
    feed = Feed(connection, kinds_of(sink), pace=pace, stale_seconds=3.0)
    async with feeding(feed):
        await until(lambda: feed.readiness() is None and len(cluster.watchers) == 4)
        before, said = cluster.count("watch"), set()
        cluster.disturb(Silent())

        def opened_again() -> bool:
            said.add(feed.readiness())
            return cluster.count("watch") >= before + 4

        await until(opened_again)
    assert said == {None}


def test_a_silent_watch_is_opened_again_before_it_is_stale():
    assert DEFAULT_PACE.watch_timeout + CONNECT_SECONDS < STALE_SECONDS
    assert DEFAULT_PACE.missing_api_backoff < STALE_SECONDS


@pytest.mark.parametrize(
    ("verb", "streams"), [pytest.param("stream", True, id="as a stream"), pytest.param("page", False, id="by pages")]
)
async def test_not_ready_when_lists_never_complete(cluster, connection, sink, verb, streams):
    """An event during a list does not prove that the rest is up to date."""
    cluster.streams_lists, cluster.bookmark_seconds = streams, 0.03
    for number in range(9):
        cluster.put(PODS, f"pod-{number}", namespace="vision", **of(1))
    feed = Feed(connection, kinds_of(sink), pace=FAST, stale_seconds=0.1)
    async with feeding(feed):
        await until(lambda: feed.readiness() is None and len(cluster.watchers) == 4)
        cluster.always[verb] = ErrorEvent(410) if streams else Answer(410)
        cluster.disturb(ErrorEvent(410))
        await until(lambda: "pods: no event from the API server for" in (feed.readiness() or ""))
        cluster.always.clear()
        await until(lambda: feed.readiness() is None)


@pytest.mark.usefixtures("cluster")
async def test_a_bug_in_one_translation_is_raised(connection, sink):
    def broken(_world, _node):
        raise KeyError("a bug")

    feed = Feed(connection, (replace(world_kinds.NODES, apply=broken).watched(sink), *kinds_of(sink)[1:]), pace=FAST)
    with pytest.raises(ExceptionGroup) as raised:
        await feed.run()
    assert raised.group_contains(KeyError, match="a bug")
