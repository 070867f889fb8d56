"""The recorder: what a server measures reaches its file, whatever happens to the process or the disk meanwhile."""

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from tests.addons.history.support import A100, T0, Clock, amounts
from tests.core.support import make
from webhook.addons.history.gpu_time import EvictedGpus, GpuHolder, NodeGpus
from webhook.addons.history.meter import INTERVAL_SECONDS
from webhook.addons.history.reader import read_usage
from webhook.addons.history.recorder import AT_ONCE, UsageRecorder
from webhook.core.model.amounts import GpuModel, Namespace, NodeName, Uid
from webhook.core.model.reasons import Code, Reason
from webhook.kube.admission.reviews import Operation, Review
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import objects
from webhook.observe.logs import LogFormat, open_logs

N0 = NodeName("n0")
HELD = ("guaranteed", "team-a", "", A100)
NO_EVICTION = {EvictedGpus("team-a", work): 0 for work in ("lost", "moved", "saved")}


@pytest.fixture
def world():
    return make.world(make.policy(), nodes=[make.node("n0", gpus=10_000, model=GpuModel(A100))])


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        yield file


@asynccontextmanager
async def recording(world, path, clock, log, **more):
    """Record until the end of the block; every flush is a call of the test."""
    recorder = UsageRecorder(world, open_logs(LogFormat.JSON, fd=log.fileno()), path=path, clock=clock, **more)
    task = asyncio.create_task(recorder.run())
    await until(lambda: recorder.until)
    await recorder.flush()
    try:
        yield recorder
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(is_done):
    while not is_done():  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.001)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def found(path, start=None):
    return amounts(read_usage(path, 0, 2**40).rows, start=start)


async def test_what_pods_hold_reaches_the_file_with_the_last_batch(world, path, clock, log):
    world.set_pod(make.resident(1, node=N0))
    async with recording(world, path, clock, log) as recorder:
        clock.seconds += 10
        await recorder.flush()
        assert found(path)[HELD] == 10
        pod = make.resident(3, node=N0)
        world.set_pod(pod)
        await turns()
        clock.seconds += 2.5
        world.remove_pod(pod.uid)
        await turns()
        clock.seconds += 1
    assert found(path)[HELD] == 13.5 + 3 * 2.5
    assert found(path)[("observed", "", "", "")] == 13.5
    assert found(path)[("free", "", "", A100)] == (10_000 - 1) * 13.5  # sampled with each batch


async def test_more_pods_than_one_turn_of_the_loop_handles_are_all_measured(world, path, clock, log):
    async with recording(world, path, clock, log) as recorder:
        for _ in range(3 * AT_ONCE + 1):
            world.set_pod(make.resident(1, node=N0))
        await turns(8)
        clock.seconds += 1
        await recorder.flush()
    assert found(path)[HELD] == 3 * AT_ONCE + 1


async def test_a_killed_process_leaves_no_gap_and_no_double(world, path, clock, log):
    pod = make.resident(2, node=N0, created=T0 - 50)
    world.set_pod(pod)
    async with recording(world, path, clock, log) as killed:
        clock.seconds += 10
        await killed.flush()
        left = path.with_name("left.db")
        sqlite3.connect(path).backup(sqlite3.connect(left))
        clock.seconds += 25
        async with recording(world, left, clock, log) as after:
            clock.seconds += 5
            await after.flush()
    assert found(left)[HELD] == 2 * 40
    assert found(left)[("observed", "", "", "")] == 15


async def test_a_replica_that_starts_while_the_one_before_it_still_records_counts_nothing_twice(
    world, path, clock, log
):
    world.set_pod(make.resident(1, node=N0, created=T0))
    async with recording(world, path, clock, log) as before:
        clock.seconds += 10
        after = UsageRecorder(world, open_logs(LogFormat.JSON, fd=log.fileno()), path=path, clock=clock)
        task = asyncio.create_task(after.run())
        await until(lambda: after.problem)
        assert "is written by another process" in after.problem
        clock.seconds += 10
        await before.flush()
    clock.seconds += 5
    await after.flush()
    assert after.problem is None
    clock.seconds += 5
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert found(path)[HELD] == 30


async def test_what_a_locked_file_does_not_take_is_written_once_it_does(world, path, clock, log):
    world.set_pod(make.resident(1, node=N0))
    async with recording(world, path, clock, log) as recorder:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            clock.seconds += INTERVAL_SECONDS
            await recorder.flush()
        assert "database is locked" in recorder.problem
        other.execute("ROLLBACK")
        other.close()
        await recorder.flush()
        assert recorder.problem is None
        assert len(recorder.meter.rows(world.policy)) < 5
    assert {start: found(path, start)[HELD] for start in (T0, T0 + INTERVAL_SECONDS)} == {
        T0: INTERVAL_SECONDS,
        T0 + INTERVAL_SECONDS: INTERVAL_SECONDS,
    }


async def test_a_disk_that_fails_is_logged_once_and_again_when_it_works(world, tmp_path, clock, log):
    path = tmp_path / "later" / "history.db"
    async with recording(world, path, clock, log) as recorder:
        for _ in range(3):
            await recorder.flush()
        path.parent.mkdir()
        await recorder.flush()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["history not written", "history written again"]
    assert "No such file or directory" in lines[0]["why"]


async def test_time_while_the_world_is_stale_is_not_observed(world, path, clock, log):
    recorder = UsageRecorder(world, open_logs(LogFormat.JSON, fd=log.fileno()), path=path, clock=clock)
    why = None

    async def synced():
        return

    recorder.watch(lambda: why, wait_synced=synced)
    task = asyncio.create_task(recorder.run())
    await until(lambda: recorder.until)
    for why, seconds in ((None, 10), ("the watch is silent", 10), (None, 10), (None, 10)):  # noqa: B007 - read above
        clock.seconds += seconds
        await recorder.flush()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert found(path)[("observed", "", "", "")] == 20


async def test_a_clock_that_is_set_moves_the_record_without_counting_the_step(world, path, clock, log):
    world.set_pod(make.resident(1, node=N0))
    async with recording(world, path, clock, log) as recorder:
        clock.seconds += 10
        real = clock.has_been_set

        def set_now():
            clock.seconds += 7200
            return True

        clock.has_been_set = set_now
        await recorder.flush()
        clock.has_been_set = real
        clock.seconds += 10
        await recorder.flush()
    assert sum(each.amount for each in read_usage(path, 0, 2**40).rows if tuple(each.key) == HELD) == 20


async def test_refusals_are_counted_with_what_they_asked_for(world, path, clock, log):
    async with recording(world, path, clock, log) as recorder:
        for _ in range(3):
            recorder.refused(review("ada"), make.pod(8), Reason(Code.TEAM_LIMIT_EXCEEDED, ""))
        recorder.refused(review("ada"), None, Reason(Code.INVALID_REQUEST, ""))
    assert found(path)[("refused", "team-a", "ada", "")] == 4
    assert found(path)[("refused_gpus", "team-a", "ada", "")] == 24


async def test_what_an_eviction_lost_is_counted_when_its_pod_ends_in_the_file_and_in_the_metrics(
    world, path, clock, log
):
    world.set_pod(make.resident(2, uid="u1", node=N0))
    condition = {"type": "DisruptionTarget", "status": "True"}
    status = {"phase": "Running", "startTime": rfc3339(T0 - 50), "conditions": [condition]}
    written = {
        "metadata": {"name": "p", "namespace": "team-a", "uid": "u1"},
        "spec": {"nodeName": "n0", "containers": []},
        "status": status,
    }
    pod = msgspec.json.decode(msgspec.json.encode(written), type=objects.Pod)
    async with recording(world, path, clock, log) as recorder:
        recorder.note("nodes", None, "u1")
        recorder.note("pods", pod, "u1")
        clock.seconds += 10
        world.remove_pod(Uid("u1"))
        recorder.note("pods", None, "u1")
        await recorder.flush()
        assert found(path)[("lost", "team-a", "", A100)] == 120
        assert recorder.gpu_seconds()[EvictedGpus("team-a", "lost")] == 120


async def test_without_a_file_usage_is_measured_for_the_metrics_alone(world, clock, log):
    world.set_pod(make.resident(4, node=N0))
    async with recording(world, None, clock, log) as recorder:
        clock.seconds += 2 * INTERVAL_SECONDS
        await recorder.flush()
        assert recorder.gpu_seconds()[GpuHolder("team-a", A100, "guaranteed")] == 8 * INTERVAL_SECONDS
        assert not recorder.meter.rows(world.policy)


async def test_what_pods_hold_on_nodes_is_a_metric_by_tier_and_by_node(world, clock, log):
    async with recording(world, None, clock, log) as recorder:
        gone = make.resident(3, node=N0, tier="preemptible")
        for pod in (gone, make.resident(4, node=N0), make.resident(2, node=N0, tier=None), make.resident(5)):
            world.set_pod(pod)
        await turns()
        clock.seconds += 10
        holder = GpuHolder("team-a", A100, "guaranteed")
        assert recorder.gpu_seconds() == {holder: 60, holder._replace(tier="preemptible"): 30, **NO_EVICTION}
        assert recorder.nodes() == [NodeGpus("n0", A100, 10_000.0, 9.0)]
        world.remove_pod(gone.uid)
        await turns()
        assert recorder.nodes()[0].used == 6


async def test_half_a_character_in_a_name_stops_neither_the_record_nor_decisions(world, path, clock, log):
    async with recording(world, path, clock, log) as recorder:
        recorder.refused(review("\ud800"), make.pod(1), Reason(Code.TEAM_LIMIT_EXCEEDED, ""))
        recorder.refused(review("ada"), make.pod(1, labels={"a": "\ud800"}), Reason(Code.TEAM_LIMIT_EXCEEDED, ""))
        await recorder.flush()
        assert recorder.problem is None
    assert found(path)[("refused", "team-a", "?", "")] == 1


async def test_a_bug_is_logged_once_and_counted_and_the_record_goes_on(world, path, clock, log, tmp_path):
    async with recording(world, path, clock, log) as recorder:
        for _ in range(3):
            recorder.note("pods", object(), "uid")
            recorder.refused(None, None, None)
        assert recorder.dropped == 3
        recorder.watch(lambda: None, wait_synced=turns, in_force=lambda: 1 / 0)
        await recorder.flush()
        assert "ZeroDivisionError" in recorder.problem
        recorder.watch(lambda: None, wait_synced=turns)
        clock.seconds += 10
        await recorder.flush()
        assert recorder.problem is None
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events == ["bug", "history not written", "bug", "history written again"]


def review(user):
    return Review("r", Operation.CREATE, Namespace("team-a"), "", False, user, None, None)
