"""The evictor against an API server that refuses, forgets and fails: no eviction without effect, none twice."""

import asyncio
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.cluster.support.fake_api import Answer, Held, Slow
from tests.core.support import make
from tests.evictor.support.stage import HELD_NODES, NAMESPACES, NODES, PODS, fill
from tests.scenarios import serving
from webhook.cluster.writes.evictions import Evicted
from webhook.core.model.policy import Enforcement, ReclaimRules
from webhook.core.reclaim.evictions import Evictions
from webhook.core.reclaim.holds import EvictionTarget, NodeHold
from webhook.evictor import executor as executors
from webhook.evictor import hold_manager
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import NodeActions
from webhook.evictor.reporter import SentEviction
from webhook.kube.objects.events import ObjectRef

NOTICE = make.policy(make.team(guaranteed=0), make.team("team-b"), reclaim=ReclaimRules(notice_seconds=30))


async def test_a_waiting_pod_gets_a_hold_a_toleration_and_its_room(stage):
    fill(stage, "n0", "n1")
    async with stage.leader():
        stage.asker("b", gpus=2)
        await stage.until(lambda: stage.real_evictions() == 2)
        (taint,) = next(taints for node in ("n0", "n1") if (taints := stage.taints(node)))
        assert taint["key"] == "fairgate.dev/held"
        await stage.until(lambda: [each["value"] for each in stage.tolerations("b")] == [taint["value"]])
        assert len(stage.names()) == 7
        node = next(node for node in ("n0", "n1") if stage.taints(node))
        stage.bind("b", node)
        await stage.until(lambda: not stage.taints(node))
        assert "fairgate.dev/hold" not in stage.api.objects[NODES][f"/{node}"]["metadata"].get("annotations", {})
    assert stage.reasons().count("Reclaimed") == 2
    assert stage.reasons().count("Reclaiming") == 1


class SlowAnswers:
    """A connection on which the watch shows an eviction before its answer comes."""

    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    async def send(self, method, path, *more, **options):
        found = await self._connection.send(method, path, *more, **options)
        if path.endswith("/eviction"):
            await asyncio.sleep(1)
        return found


async def test_an_eviction_has_its_event_though_the_pod_was_gone_before_the_answer_came(stage):
    stage.connection = SlowAnswers(stage.connection)
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b", gpus=1)
        await stage.until(lambda: "Reclaimed" in stage.reasons())
    assert stage.reasons().count("Reclaimed") == 1


async def test_the_plan_names_the_victims_and_their_owner_gets_an_event_afterwards(stage):
    stage.node("n0")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-train", "controller": True}
    for number in range(4):
        stage.borrower(f"v{number}", on="n0", ownerReferences=[owner])
    async with stage.leader():
        stage.asker("b", gpus=2, ownerReferences=[owner | {"name": "waits", "uid": "u-waits"}])
        await stage.until(lambda: stage.real_evictions() == 2)
    plan = next(event.message for event in stage.events if event.reason == "Reclaiming")
    assert "To be evicted: 2 pods of team team-a (2 GPUs)" in plan
    want = ObjectRef("Job", "team-a", "train", "u-train", "batch/v1")
    [asks, *evicted] = stage.notices
    assert (asks.owner, asks.reason) == (
        ObjectRef("Job", "team-b", "waits", "u-waits", "batch/v1"),
        "Reclaiming",
    )
    assert (asks.message, asks.series) == (plan, "Reclaiming"), "those of all pods that it waits with become one"
    assert [(each.owner, each.reason, each.series) for each in evicted] == [(want, "Reclaimed", "for team team-b")] * 2
    assert all("was evicted: team team-b takes its share back for a pod of" in each.message for each in evicted)
    assert {(kind, each.team) for kind, each, _ in stage.messages} == {("evictions", "team-a")}
    assert all(text.startswith("team team-b takes its share back") for _, _, text in stage.messages)
    gone = {f"v{number}" for number in range(4)} - stage.names()
    assert sorted(each.name for _, each, _ in stage.messages) == sorted(gone)


def _placed(stage, what):
    return serving.total(stage.metrics.expose().body.decode(), f"fairgate_reclaim_duration_seconds_{what}")


async def test_the_time_to_room_counts_from_the_demand_and_not_from_the_plan(stage):
    stage.node("n0")
    stage.asker("holder", gpus=4)
    stage.bind("holder", "n0")
    skew, now = 0, stage.now
    stage.now = lambda: now() + skew

    async with stage.leader():
        stage.asker("b", gpus=2)
        await stage.until(lambda: "CannotReclaim" in stage.reasons())
        skew = 100
        stage.node("n1")
        for number in range(4):
            stage.borrower(f"n1-{number}", on="n1")
        await stage.until(lambda: stage.real_evictions() == 2)
        stage.bind("b", "n1")
        await stage.until(lambda: _placed(stage, "count") == 1)
        assert 100 <= _placed(stage, "sum") < 110


async def test_the_node_names_the_beneficiary_before_any_eviction(stage):
    fill(stage, "n0")
    stage.api.always["patch"] = Answer(503)
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.api.count("patch") >= 1)
        await asyncio.sleep(0.1)
        assert stage.real_evictions() == 0
        stage.api.always.clear()
        await stage.until(lambda: stage.real_evictions() == 1)


async def test_the_api_server_guards_a_node_from_before_the_first_eviction_until_the_hold_ends(stage):
    fill(stage, "n0")
    stage.api.put(HELD_NODES, "fairgate", spec={"nodes": {"former": ["u"]}})
    stage.api.faults["post"].append(held := Held())
    async with stage.leader():
        await stage.until(lambda: stage.locked() == {})
        uid = stage.asker("b")
        await stage.until(lambda: stage.api.count("post") == 1)
        assert stage.locked() == {"n0": [uid]}
        stage.api.put(HELD_NODES, "fairgate", spec={})
        await stage.until(lambda: stage.locked() == {"n0": [uid]})  # written by a former leader
        held.go.set()
        await stage.until(lambda: stage.real_evictions() == 1)
        stage.bind("b", "n0")
        await stage.until(lambda: not stage.taints("n0") and stage.locked() == {})


async def test_a_pod_that_got_its_room_leaves_the_guard_with_the_last_one_of_its_node(stage):
    fill(stage, "n0")
    async with stage.leader():
        uids = sorted([stage.asker("b0"), stage.asker("b1")])
        await stage.until(lambda: stage.real_evictions() == 2)
        assert stage.locked() == {"n0": uids}
        stage.bind("b0", "n0")
        await stage.until(lambda: _placed(stage, "count") == 1)
        await asyncio.sleep(0.2)
        assert stage.locked() == {"n0": uids}
        stage.bind("b1", "n0")
        await stage.until(lambda: stage.locked() == {})


async def test_a_missing_guard_object_is_created_before_any_node_is_held(stage):
    """The API server would look for it whenever a pod is created or bound."""
    fill(stage, "n0")
    stage.api.delete(HELD_NODES, "fairgate")
    async with stage.leader():
        await stage.until(lambda: "/fairgate" in stage.api.objects[HELD_NODES])
        assert stage.locked() == {}
        uid = stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        assert stage.locked() == {"n0": [uid]}


@pytest.mark.parametrize("status", [403, 404])
async def test_room_is_freed_without_the_guard_too(stage, status, caplog):
    fill(stage, "n0")
    stage.api.faults[f"patch {HELD_NODES}/fairgate"].extend([Answer(status)] * 9)
    stage.api.faults[f"post {HELD_NODES}"].extend([Answer(status)] * 9)
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
    assert stage.locked() == {}
    assert "held nodes are not guarded" in caplog.text


async def test_no_pod_is_evicted_while_the_guard_cannot_be_written(stage, caplog):
    fill(stage, "n0")
    stage.api.faults[f"patch {HELD_NODES}/fairgate"].extend([Answer(500)] * 5)
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.api.count("patch") == 5)
        assert (stage.real_evictions(), stage.taints("n0")) == (0, [])
        await stage.until(lambda: stage.real_evictions() == 1)
    assert caplog.text.count("held nodes are not guarded") == 1


async def test_a_victim_refused_by_the_real_eviction_is_replaced(stage):
    fill(stage, "n0")
    stage.api.faults["post"].append(Answer(403))
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        await asyncio.sleep(0.1)
        assert (stage.real_evictions(), len(stage.names())) == (1, 4)


async def test_a_postponed_victim_is_retried_and_no_other_pod_is_evicted(stage):
    fill(stage, "n0")
    stage.api.faults["post"].append(Answer(429, retry_after="1"))
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        assert len({sent["metadata"]["name"] for sent in stage.api.evictions}) == 1


async def test_queued_victims_stay_when_the_beneficiary_is_gone(stage, monkeypatch):
    monkeypatch.setattr(executors, "AT_ONCE", 1)
    fill(stage, "n0")
    async with stage.leader():
        stage.api.faults["post"].append(held := Held())
        stage.asker("b", gpus=3)
        await stage.until(lambda: stage.api.count("post") == 1)
        stage.api.delete(PODS, "b", namespace="team-b")
        await asyncio.sleep(0.3)  # the event arrives
        held.go.set()
        await stage.until(lambda: not stage.taints("n0"))
    assert stage.real_evictions() == 1


async def test_a_victim_is_not_evicted_again_before_the_first_eviction_is_answered(stage):
    stage.node("n0")
    victim = EvictionTarget(stage.borrower("a", on="n0"), "team-a", "a", stage.asker("b"), 0)
    hold = NodeHold("h", "n0", 0, (), (victim,))
    node_actions = NodeActions("n0", hold, is_news=False, evictions=(victim,))
    table, answered = Evictions(), []
    table.pick_up(hold, noticed=lambda _: False)
    progress = SimpleNamespace(
        begin=lambda target, node: SentEviction(target, None, None) if table.send(target.uid, node) else None,
        is_guarded=lambda _: False,
        was_put_off=lambda _: False,
        answered=lambda *events: answered.append(events),
    )
    executor = Executor(stage.context(ClusterView(stage.policy)))
    stage.api.faults["post"].append(held := Held())
    first = asyncio.create_task(executor.carry_out(node_actions, progress))
    await stage.until(lambda: stage.api.count("post") == 1)
    await executor.carry_out(node_actions, progress)
    held.go.set()
    await first
    await executor.carry_out(node_actions, progress)
    assert answered == [(SentEviction(victim, None, None), Evicted.ACCEPTED)]
    assert stage.api.count("post") == 1


async def test_the_next_leader_finishes_the_hold_and_chooses_no_other_victims(stage):
    fill(stage, "n0", "n1")
    stage.api.faults["post"].extend([Answer(200), Slow(9), Slow(9)])
    async with stage.leader():
        stage.asker("b", gpus=3)
        await stage.until(lambda: any(stage.taints(node) for node in ("n0", "n1")))
        await stage.until(lambda: stage.api.count("post") >= 2)
    node = next(node for node in ("n0", "n1") if stage.taints(node))
    note = json.loads(stage.api.objects[NODES][f"/{node}"]["metadata"]["annotations"]["fairgate.dev/hold"])
    stage.api.faults.clear()
    async with stage.leader():
        await stage.until(lambda: len(stage.names()) == 6)
        await asyncio.sleep(0.1)
    gone = {each["name"] for each in note["evict"]}
    assert len(gone) == 3
    assert stage.names() == {"b", *(f"n{n}-{g}" for n in range(2) for g in range(4))} - gone


async def test_the_next_leader_adds_no_toleration_twice(stage):
    fill(stage, "n0")
    stage.api.faults["post"].extend([Slow(0), Slow(9)])
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: len(stage.tolerations("b")) == 1)
    async with stage.leader():
        await stage.until(lambda: stage.real_evictions() == 1)
        await asyncio.sleep(0.1)
    assert len(stage.tolerations("b")) == 1


async def test_a_pod_that_was_placed_meanwhile_is_not_let_in(stage):
    """Its tolerations are not read any more: a patch that assumes it has none would be refused."""
    fill(stage, "n0", "n1")
    stage.asker("b", gpus=1, tolerations=[{"key": "own", "operator": "Exists"}])
    async with stage.leader():
        stage.api.faults[f"patch {HELD_NODES}/fairgate"].append(held := Held())
        await stage.until(lambda: bool(stage.events))
        stage.bind("b", "n1")
        await asyncio.sleep(0.2)  # the event arrives
        held.go.set()
        await asyncio.sleep(1)
    assert [each["key"] for each in stage.tolerations("b")] == ["own"]


async def test_a_former_leader_evicts_no_pod(stage):
    fill(stage, "n0")
    stage.budget()
    stage.is_leading = False
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.api.count("post") >= 1)
        await asyncio.sleep(0.1)
    assert stage.real_evictions() == 0
    assert stage.taints("n0") == []


async def test_an_unknown_hold_is_removed(stage):
    stage.node("n0")
    stage.node("n1", annotations={"fairgate.dev/hold": "from another time"})
    stage.api.objects[NODES]["/n0"]["spec"]["taints"] = [
        {"key": "fairgate.dev/held", "value": "x", "effect": "NoSchedule"}
    ]
    async with stage.leader():
        await stage.until(lambda: not stage.taints("n0"))
        await stage.until(lambda: not stage.api.objects[NODES]["/n1"]["metadata"].get("annotations"))


async def test_victims_get_a_notice_that_is_withdrawn_when_no_pod_waits_any_more(stage):
    fill(stage, "n0")

    def events():
        return [
            pod["metadata"]["name"]
            for pod in stage.api.objects[PODS].values()
            if "fairgate.dev/evict-at" in (pod["metadata"].get("annotations") or {})
        ]

    async with stage.leader(NOTICE):
        stage.asker("b")
        await stage.until(lambda: len(events()) == 1)
        stage.api.delete(PODS, "b", namespace="team-b")
        await stage.until(lambda: not events())
        await stage.until(lambda: not stage.taints("n0"))
    assert stage.real_evictions() == 0
    assert {"EvictionPlanned", "EvictionCancelled"} <= set(stage.reasons())


async def test_an_eviction_without_effect_is_repeated(stage, monkeypatch):
    monkeypatch.setattr(hold_manager, "UNSEEN_SECONDS", 0.3)
    fill(stage, "n0")
    stage.api.faults["post"].extend([Slow(0), Answer(200)])
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        assert len(stage.names()) == 4


async def test_room_is_kept_no_longer_than_promised(stage, monkeypatch):
    monkeypatch.setattr(hold_manager, "HOLD_SECONDS", 2 - 30)  # a grace period is added
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        await stage.until(lambda: not stage.taints("n0"))
        assert stage.real_evictions() == 1


async def test_room_is_kept_longer_while_pods_are_bound_to_its_node(stage):
    seconds = itertools.count()
    now = [100_000.0]
    stage.now = lambda: now[0]
    fill(stage, "n0")

    async def pass_time(more):
        now[0] += more
        stage.api.put(NAMESPACES, f"news-{next(seconds)}")
        await asyncio.sleep(0.2)

    async with stage.leader():
        stage.asker("b")
        stage.asker("c")
        await stage.until(lambda: len(stage.tolerations("b")) == len(stage.tolerations("c")) == 1)
        await stage.until(lambda: stage.real_evictions() == 2)
        await pass_time(80)  # grace periods of 30 s, and 60 s
        stage.bind("b", "n0")
        await pass_time(0)
        await pass_time(50)
        assert stage.taints("n0"), "b was bound 50 s ago"
        await pass_time(20)
        await stage.until(lambda: not stage.taints("n0"))


async def test_while_policy_is_not_enforced_no_pod_is_evicted_and_holds_are_removed(stage):
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: bool(stage.taints("n0")))
    done = stage.real_evictions()
    stage.asker("c", gpus=2)
    shadow = replace(stage.policy, enforce=Enforcement.SHADOW)
    async with stage.leader(shadow):
        await stage.until(lambda: not stage.taints("n0"))
        await asyncio.sleep(0.1)
    assert stage.real_evictions() == done


async def test_a_job_that_counts_failures_is_not_failed(stage):
    """It survives one more failure and has a guaranteed pod; on the other node no workload counts failures."""
    job = stage.api.put("/apis/batch/v1/jobs", "j", namespace="team-a", spec={"backoffLimit": 1})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    stage.node("n0")
    stage.node("n1")
    for number in range(4):
        stage.borrower(f"j{number}", on="n0")
        stage.borrower(f"o{number}", on="n1")
        stage.api.objects[PODS][f"team-a/j{number}"]["metadata"]["ownerReferences"] = [owner]
    stage.api.objects[PODS]["team-a/j3"]["metadata"]["labels"]["fairgate.dev/tier"] = "guaranteed"
    async with stage.leader():
        stage.asker("b", gpus=2)
        await stage.until(lambda: stage.real_evictions() == 2)
        assert {"j0", "j1", "j2", "j3"} <= stage.names()
