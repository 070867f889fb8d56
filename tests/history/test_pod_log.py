"""What came is noted from the watch and from refusals, in bounded number, and reaches the file as it was asked for."""

import json

import msgspec
import pytest

from tests import builders as b
from tests.core.support import make
from tests.history.support import T0, Clock
from webhook.cli.replay.recorded import world_of
from webhook.core.model.amounts import NodeName
from webhook.core.model.node import Autoscaler
from webhook.history import evicted_work
from webhook.history.evicted_work import MAX_REFUSALS, PodLog
from webhook.history.reader import read_trace
from webhook.history.store import MAX_OBJECT_BYTES, SCALERS_OF_NAMESPACE, Batch, HistoryStore, PodRow
from webhook.kube.nodes.nodes import API, marks_of
from webhook.kube.objects import objects
from webhook.kube.workloads import unknown_kinds

N0 = NodeName("n0")
REFUSED = PodRow("", "team-a", "job-1", "Job/job", "team-a", "ada", gpus=8.0, code="TeamLimitExceeded")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def world():
    return make.world(make.policy(), nodes=[make.node("n0")])


@pytest.fixture
def log(world, clock):
    return PodLog(world, clock)


def pod(uid="u1", *, node="", **labels):
    written = {
        "metadata": {"name": uid, "namespace": "team-a", "uid": uid, "labels": labels},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}, "image": "secret"}],
            **({"nodeName": node} if node else {}),
        },
    }
    return msgspec.json.decode(msgspec.json.encode(written), type=objects.Pod)


def show(world, log, uid="u1", *, node=None, **labels):
    world.set_pod(make.resident(2, uid=uid, node=node, created=T0 - 5))
    log.note("pods", pod(uid, node=node or "", **labels), uid)


def end(world, log, uid="u1"):
    world.remove_pod(uid)
    log.note("pods", None, uid)


def test_a_pod_is_noted_when_it_comes_when_it_is_bound_and_when_it_ends(world, log, clock, tmp_path):
    store = HistoryStore(tmp_path / "h.db")

    def write():
        store.write(Batch([], clock(), log.take().trace()))

    show(world, log)
    write()
    clock.seconds += 10
    show(world, log, node=N0)
    write()
    clock.seconds += 30
    show(world, log, node=N0, changed="label")
    end(world, log)
    write()
    store.close()
    (found,) = read_trace(tmp_path / "h.db", 0, 2**40).pods
    assert (found.uid, found.team, found.tier, found.gpus) == ("u1", "team-a", "guaranteed", 2)
    assert (found.created, found.bound, found.ended) == (T0 - 5, T0 + 10, T0 + 40)
    spec = json.loads(found.object)["spec"]
    assert spec == {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}], "nodeName": "n0"}


def test_pods_without_gpus_are_not_noted(world, log):
    world.set_pod(make.resident(0, uid="cpu", node=N0))
    log.note("pods", pod("cpu", node="n0"), "cpu")
    assert not log.take().pods


def test_a_pod_that_comes_and_goes_between_two_batches_is_one_row(world, log, clock):
    show(world, log, node=N0)
    clock.seconds += 3
    end(world, log)
    ((row, found),) = log.take().pods
    assert (row.bound, row.ended) == (T0, T0 + 3)
    assert found is not None


def test_an_object_that_is_too_large_is_left_out_of_its_row(world, log):
    show(world, log, node=N0, large="x" * MAX_OBJECT_BYTES)
    (row,) = log.take().trace().pods
    assert (row.object, row.gpus) == ("", 2)


def test_equal_refusals_of_a_day_are_one_row(log, clock, tmp_path):
    store = HistoryStore(tmp_path / "h.db")
    for _ in range(3):
        for _ in range(1000):
            log.refused(REFUSED, pod())
        clock.seconds += 60
        store.write(Batch([], clock(), log.take().trace()))
    store.close()
    (found,) = read_trace(tmp_path / "h.db", 0, 2**40).pods
    assert (found.times, found.created, found.ended, found.is_refusal) == (3000, T0, T0 + 120, True)


def test_a_tenant_who_invents_names_gets_a_bounded_number_of_rows(log):
    for number in range(10 * MAX_REFUSALS):
        log.refused(REFUSED._replace(owner="", name=f"{number}" * 100), pod())
    log.refused(REFUSED._replace(team="team-b"), pod())
    assert len(log.take().pods) == MAX_REFUSALS + 1
    assert log.dropped == 9 * MAX_REFUSALS


def test_more_pods_than_are_kept_between_two_batches_are_dropped_and_counted(world, log, monkeypatch):
    monkeypatch.setattr(evicted_work, "MAX_PENDING", 3)
    for number in range(5):
        show(world, log, f"u{number}", node=N0)
    assert len(log.take().pods) == 3
    assert log.dropped == 2


def test_nodes_and_namespaces_are_kept_as_they_were_last(log, clock, tmp_path):
    store = HistoryStore(tmp_path / "h.db")
    for allocatable in ("8", "7"):
        body = {"metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": allocatable}}}
        log.note("nodes", msgspec.json.decode(msgspec.json.encode(body), type=objects.Node), "n0")
        store.write(Batch([], clock(), log.take().trace()))
        clock.seconds += 10
    log.note("nodes", None, "n0")
    log.note("resourceslices", None, "s0")
    store.write(Batch([], clock(), log.take().trace()))
    store.close()
    (found,) = read_trace(tmp_path / "h.db", 0, 2**40).objects
    assert json.loads(found.object)["status"] == {"allocatable": {"nvidia.com/gpu": "7"}}
    assert (found.kind, found.since, found.until) == ("Node", T0, T0 + 20)


def test_a_policy_is_kept_once_until_it_changes(log, clock, tmp_path):
    store = HistoryStore(tmp_path / "h.db")
    for text in ("one", "one", "two"):
        log.note_policy(text, lambda text=text: f"kind: {text}")
        store.write(Batch([], clock(), log.take().trace()))
        clock.seconds += 10
    store.close()
    found = read_trace(tmp_path / "h.db", 0, 2**40).policies
    assert [(each.hash, each.documents) for each in found] == [("one", "kind: one"), ("two", "kind: two")]


def test_pods_that_ended_while_nothing_was_recorded_end_with_the_last_record(world, log, tmp_path):
    store = HistoryStore(tmp_path / "h.db")
    for uid in ("u1", "u2"):
        show(world, log, uid, node=N0)
    store.write(Batch([], T0, log.take().trace()))
    store.end_missing(["u2"], at=T0 + 7)
    store.close()
    assert {each.uid: each.ended for each in read_trace(tmp_path / "h.db", 0, 2**40).pods} == {"u1": T0 + 7, "u2": 0}


def test_a_crowd_of_one_team_displaces_its_own_pods_first(tmp_path, monkeypatch):
    monkeypatch.setattr("webhook.history.store.MAX_PODS", 50)
    store = HistoryStore(tmp_path / "h.db")
    teams = ["a"] * 90 + ["b"] * 20
    rows = [PodRow(f"{team}{n}", team, "p", team=team, created=T0 + n) for n, team in enumerate(teams)]
    store.write(Batch([], T0, evicted_work.Notes(tuple((row, None) for row in rows), (), ()).trace()))
    store.prune(T0)
    store.close()
    teams = [each.team for each in read_trace(tmp_path / "h.db", 0, 2**40).pods]
    assert (teams.count("a"), teams.count("b")) == (30, 20)


def test_the_autoscalers_of_a_cluster_are_objects_of_its_history(world, log, clock, tmp_path):
    store = HistoryStore(tmp_path / "h.db")
    for each in Autoscaler:
        for mark in marks_of(each, at=T0):
            log.note(API[type(mark)].plural, mark, mark.metadata.name)
    store.write(Batch([], clock(), log.take().trace()))
    clock.seconds += 10
    for mark in marks_of(Autoscaler.KARPENTER, at=T0):
        log.note(API[type(mark)].plural, None, mark.metadata.name)
    store.write(Batch([], clock(), log.take().trace()))
    store.close()

    def found(since, until):
        return world_of(read_trace(tmp_path / "h.db", T0 + since, T0 + until), world.policy).autoscalers

    assert found(0, 5) == set(Autoscaler)
    assert found(15, 20) == {Autoscaler.CLUSTER_AUTOSCALER}


def scaler(path, *, least=2):
    namespace, _, name = path.partition("/")
    written = b.autoscaler(name, namespace=namespace, minimum=least)
    written["metadata"]["annotations"] = {"long": "x" * 50_000}
    return msgspec.json.decode(msgspec.json.encode(written), type=unknown_kinds.Autoscaler)


def test_what_scales_workloads_is_an_object_of_the_history(world, log, clock, tmp_path):
    store, web = HistoryStore(tmp_path / "h.db"), "team-a/Deployment/web"
    for found in (scaler("team-a/web", least=3), scaler("team-a/web"), None):
        log.note(unknown_kinds.SCALERS, found, "team-a/web")
        store.write(Batch([], clock(), log.take().trace()))
        clock.seconds += 10
    store.close()
    for since, until, want in ((0, 5, {web}), (30, 40, set())):
        trace = read_trace(tmp_path / "h.db", T0 + since, T0 + until)
        minimums = world_of(trace, world.policy).minimums
        assert {each for each in (web,) if minimums.is_scaled(each)} == want
    [row] = read_trace(tmp_path / "h.db", T0, T0 + 5).objects
    assert json.loads(row.object)["spec"]["minReplicas"] == 2
    assert len(row.object) < 300, "what tenants size is not kept"


def test_a_tenant_who_makes_autoscalers_without_end_displaces_neither_nodes_nor_those_of_others(log, clock, tmp_path):
    store, most = HistoryStore(tmp_path / "h.db"), SCALERS_OF_NAMESPACE
    log.note(unknown_kinds.SCALERS, scaler("team-b/web"), "team-b/web")
    for batch in range(3):
        paths = [f"team-a/w{batch}-{number}" for number in range(2 * most)]
        for path in paths:
            log.note(unknown_kinds.SCALERS, scaler(path), path)
        taken = log.take()
        assert len(taken.objects) == most + (batch == 0)
        store.write(Batch([], clock(), taken.trace()))
        for path in paths[:most]:
            log.note(unknown_kinds.SCALERS, None, path)
        clock.seconds += 10
        store.write(Batch([], clock(), log.take().trace()))
    log.note(unknown_kinds.SCALERS, scaler("team-a/stays"), "team-a/stays")
    store.write(Batch([], clock(), log.take().trace()))
    store.prune(T0)
    store.close()
    names = {each.name for each in read_trace(tmp_path / "h.db", 0, 2**40).objects}
    assert {"team-b/web", "team-a/stays"} <= names
    assert len(names) == most + 1
    assert log.dropped


def test_autoscalers_leave_room_for_nodes_in_a_batch(log, monkeypatch):
    monkeypatch.setattr(evicted_work, "MAX_PENDING", 10)
    for number in range(20):
        log.note(unknown_kinds.SCALERS, scaler(f"team-{number}/web"), f"team-{number}/web")
    node = msgspec.json.decode(b'{"metadata": {"name": "n0"}}', type=objects.Node)
    log.note("nodes", node, "n0")
    assert [row.kind for row, _ in log.take().objects] == ["HorizontalPodAutoscaler"] * 5 + ["Node"]
    assert log.dropped == 15


def test_a_pod_that_was_evicted_is_noted_as_such_and_is_no_refusal(world, log, tmp_path):
    show(world, log, node=N0)
    store = HistoryStore(tmp_path / "h.db")
    store.write(Batch([], T0, log.take().trace()))  # it was written before it ended
    said = b'{"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}'
    ends = msgspec.structs.replace(pod(node=N0), status=msgspec.json.decode(said, type=objects.PodStatus))
    log.note("pods", ends, "u1")
    end(world, log)
    show(world, log, "u2", node=N0)
    end(world, log, "u2")
    store.write(Batch([], T0, log.take().trace()))
    store.close()
    rows = {row.uid: row for row in read_trace(tmp_path / "h.db", 0, T0 + 100).pods}
    assert {uid: (row.is_evicted, row.is_refusal) for uid, row in rows.items()} == {
        "u1": (True, False),
        "u2": (False, False),
    }
