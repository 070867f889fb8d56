"""The state is kept by watches; where a right is missing, by reading again; a policy and Events are followed."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tests import builders as b
from tests.addons.page.support.pages import decided, policy_of
from tests.cli.sample_world import POLICY
from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import write_kubeconfig
from webhook.addons.page.live import hub as state_updater
from webhook.addons.page.live.cluster_state import ClusterState, KeptObjects, Reading
from webhook.addons.page.live.hub import READING, Hub, StateUpdater
from webhook.addons.page.views.gpu_map import ZONE
from webhook.addons.page.views.teams import EVERYTHING
from webhook.cli.live_cluster import policy_of_report
from webhook.cluster.api.client import ClusterError, connect
from webhook.core.world.world import World

NODES, PODS, EVENTS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events", "/api/v1/namespaces"
SCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
REPORTS = "/apis/fairgate.dev/v1alpha1/reports"


def put(api, path, made, **more):
    metadata = made["metadata"]
    parts = {key: value for key, value in made.items() if key not in ("metadata", "kind", "apiVersion")}
    api.put(path, metadata["name"], namespace=metadata.get("namespace", ""), metadata=dict(metadata), **parts, **more)


class Kept:
    def __init__(self, state, hub, updater, task):
        self.state, self.hub, self.updater, self.task = state, hub, updater, task

    async def until(self, check):
        async with asyncio.timeout(60):
            while not check():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)
                await self.hub.publish_rows()


@pytest.fixture
async def keep(api, tmp_path):
    """Start to keep the state of the fake cluster."""
    tasks, connections = [], []

    async def start(*, reread=None, read_policy=None):
        connections.append(await connect(write_kubeconfig(tmp_path / "config", api.url)))
        state = ClusterState(Reading(World(policy_of()), KeptObjects()), "test", ZONE, problem=READING)
        hub = Hub(state)
        updater = StateUpdater(connections[-1], state, reread=reread, read_policy=read_policy)
        tasks.append(asyncio.create_task(updater.run()))
        return Kept(state, hub, updater, tasks[-1])

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in connections:
        await each.close()


async def test_nodes_pods_decisions_and_events_are_followed(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    put(api, NAMESPACES, {"metadata": {"name": "vision"}})
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    put(api, PODS, decided(b.pod("p1", gpus=2, node="n1", labels=labels)))
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.rows)
    assert [pod.name for pod in kept.state.rows["n1"].pods] == ["p1"]
    assert kept.state.reading.objects.get("Pod", "vision/p1")["kind"] == "Pod"
    assert [each.kind for each in kept.state.decisions.newest(EVERYTHING)] == ["admitted"]

    put(api, PODS, b.pod("p2", gpus=4, node="n1", labels=labels))
    await kept.until(lambda: len(kept.state.rows["n1"].pods) == 2)
    api.delete(PODS, "p1", namespace="vision")
    await kept.until(lambda: [pod.name for pod in kept.state.rows["n1"].pods] == ["p2"])
    assert kept.state.reading.objects.get("Pod", "vision/p1") is None

    event = {
        "source": {"component": "fairgate"},
        "reason": "Refused",
        "message": "exceeded quota",
        "involvedObject": {},
    }
    put(api, EVENTS, {"metadata": {"name": "e1", "namespace": "vision"}, **event})
    await kept.until(lambda: "refused" in kept.state.decisions.kinds(EVERYTHING))
    api.delete(NODES, "n1")
    await kept.until(lambda: not kept.state.rows)
    lists = [asked.query.get("fieldSelector") for asked in api.asked if asked.verb == "list" and asked.path == PODS]
    assert sorted(lists) == ["status.phase!=Succeeded,status.phase!=Failed", "status.phase=Failed"], "each once"


async def test_a_node_that_rejects_pods_is_shown_as_such(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(3):
        failed = b.pod(f"r{number}", uid=f"r{number}", node="n1")
        put(api, PODS, failed | {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": at}})
    kept = await keep()
    await kept.until(lambda: "n1" in kept.state.rows and kept.state.rows["n1"].state == "rejects pods")


async def test_a_pod_that_cannot_be_read_completely_counts_by_what_can_be(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    broken = b.pod("broken", gpus=2, node="n1")
    broken["spec"]["tolerations"] = "not a list"
    put(api, PODS, broken)
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.rows and kept.state.rows["n1"].pods)


async def test_a_published_policy_is_followed(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    kept = await keep(read_policy=policy_of_report)
    await kept.until(lambda: not kept.state.problem)
    api.put(
        REPORTS,
        "policy",
        policy={"hash": "h", "enforce": "enforce", "documents": POLICY.replace("name: nlp", "name: new")},
    )
    await kept.until(lambda: [team.name for team in kept.state.world.policy.teams] == ["new", "serving", "vision"])


async def test_without_events_the_rest_is_shown_and_a_note_says_so(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    api.faults[f"list {EVENTS}"].extend([Answer(403)] * 50)
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.reading.notes)
    assert "you may not list Events" in kept.state.reading.notes[0]


async def test_minimums_follow_autoscalers(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    for each in b.replicas("web", 3, node="n1"):
        put(api, PODS, each)
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.rows)
    put(api, SCALERS, b.autoscaler("web", minimum=2))
    minimums = kept.state.world.minimums
    await kept.until(lambda: [minimums.of(each).minimum for each in minimums.workloads()] == [2])
    assert kept.state.reading.objects.get("HorizontalPodAutoscaler", "vision/web")["spec"]["minReplicas"] == 2
    put(api, SCALERS, b.autoscaler("web", minimum=1))
    await kept.until(lambda: minimums.of(next(iter(minimums.workloads()))).minimum == 1)


def heartbeat(node):
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}
    return node | {"status": node["status"] | {"conditions": [ready], "images": [{"names": ["a"]}]}}


def ready(node):
    return node | {"status": node["status"] | {"conditions": [{"type": "Ready", "status": "True"}]}}


SCALES = ((2, 3), (2, 4), (1, 4))
POD = b.pod("p1", gpus=2, node="n1", phase="Running")


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        pytest.param(
            SCALERS,
            [b.autoscaler("web", minimum=least, status={"currentReplicas": now}) for least, now in SCALES],
            id="the status of an autoscaler",
        ),
        pytest.param(
            NODES,
            [ready(b.node("n2", gpus=4)), heartbeat(b.node("n2", gpus=4)), b.node("n2", gpus=2)],
            id="a heartbeat",
        ),
        pytest.param(
            NAMESPACES,
            [
                {"metadata": {"name": "vision"}},
                {"metadata": {"name": "vision", "annotations": {"other.io/seen": "12:00"}}},
                {"metadata": {"name": "vision", "labels": {"team": "nlp"}}},
            ],
            id="a foreign annotation of a namespace",
        ),
        pytest.param(
            PODS,
            [
                POD,
                POD | {"status": POD["status"] | {"podIP": "10.0.0.1", "hostIP": "10.0.0.2"}},
                b.pod("p1", gpus=2, node="n1", phase="Running", labels={"fairgate.dev/tier": "preemptible"}),
            ],
            id="the address of a pod",
        ),
    ],
)
async def test_a_change_that_fairgate_does_not_read_changes_nothing(api, keep, path, versions):
    """Of any kind: kubelets and controllers write statuses of all objects several times a minute."""
    before, same, other = versions
    put(api, NODES, b.node("n1", gpus=8))
    put(api, path, before)
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.rows)
    applied, changes = [], []
    objects, kept.state.on_change = kept.state.reading.objects, lambda: changes.append(1)
    keep_object = objects.set
    objects.set = lambda found: applied.append(keep_object(found)) or applied[-1]
    put(api, path, same)
    await kept.until(lambda: applied)
    assert (applied, changes) == ([False], []), "it came, and nothing was touched"
    put(api, path, other)
    await kept.until(lambda: changes)
    assert applied == [False, True]


async def test_without_the_right_to_watch_autoscalers_the_rest_is_watched_and_a_note_says_so(api, keep):
    put(api, NODES, b.node("n1", gpus=8))
    api.faults[f"list {SCALERS}"].extend([Answer(403)] * 50)
    kept = await keep()
    await kept.until(lambda: not kept.state.problem and kept.state.rows)
    assert kept.state.reading.notes == ("you may not list horizontalpodautoscalers",)


async def test_where_watching_is_not_allowed_what_may_be_read_is_read_again(api, keep, monkeypatch):
    monkeypatch.setattr(state_updater, "AGAIN_SECONDS", 0.05)
    api.faults[f"list {NODES}"].extend([Answer(403)] * 50)
    calls = []

    async def reread():
        calls.append(1)
        if len(calls) == 2:
            raise ClusterError("the API server is away")
        objects = KeptObjects()
        objects.set(decided(b.pod("p1", gpus=2, node="n1")))
        return Reading(World(policy_of()), objects, notes=("nodes are not shown",), is_room_known=False)

    kept = await keep(reread=reread)
    await kept.until(lambda: kept.state.reading.notes == ("nodes are not shown",))
    await kept.until(lambda: kept.state.why_stale() == "the API server is away")
    assert not kept.state.problem, "what was read before stays"
    await kept.until(lambda: kept.state.why_stale() is None)
    assert kept.updater.is_listed.is_set()
    assert [each.about for each in kept.state.decisions.newest(EVERYTHING)] == ["Pod p1"]


class ForbiddenFeed:
    """A feed that may watch nothing, and that takes a moment to end."""

    is_ending = asyncio.Event()

    def __init__(self, _connection, _kinds, **_more):
        self.forbidden = SimpleNamespace(is_forbidden=True, problem="forbidden")

    def why_not_synced(self):
        return "not listed yet"

    async def run(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await asyncio.sleep(0.05)


async def test_it_ends_when_cancelled_while_it_stops_to_watch(keep, monkeypatch):
    monkeypatch.setattr(state_updater, "Feed", ForbiddenFeed)
    monkeypatch.setattr(ForbiddenFeed, "is_ending", asyncio.Event())

    async def reread():
        raise AssertionError("it was cancelled before")

    kept = await keep(reread=reread)
    await ForbiddenFeed.is_ending.wait()
    kept.task.cancel()
    done, _ = await asyncio.wait([kept.task], timeout=60)
    assert done
    assert kept.task.cancelled()


async def test_while_the_cluster_does_not_answer_the_page_says_that_it_reads(api, keep):
    api.always["list"] = Answer(500)
    kept = await keep()
    await kept.until(lambda: kept.state.problem != READING)
    assert kept.state.problem.startswith(READING)
    assert "500" in kept.state.problem
