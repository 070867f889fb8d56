"""Charged pods that keep their gate until reclaim has made their room, against an API server."""

import json
from contextlib import asynccontextmanager

import pytest

from tests import builders
from tests.core.support import make
from tests.server.support.harness import until
from tests.server.support.releases import NODES, PODS, TEAM_LEDGERS, A, replica, staged
from webhook.core.starting import awaited_room
from webhook.kube.objects import keys
from webhook.server.leader import start_loop


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 0.1)


@asynccontextmanager
async def borrowed(folder, **more):
    """A node whose ten GPUs another team borrows."""
    async with staged(folder, leads=False, **more) as stage:
        for number in range(10):
            labels = {keys.TEAM: "team-b", keys.TIER: "preemptible"}
            made = builders.pod(f"b{number}", namespace="team-b", gpus=1, labels=labels, node="n0")
            stage.api.put(PODS, f"b{number}", namespace="team-b", metadata=made.pop("metadata"), **made)
        await until(lambda: stage.world.usage("team-b").total == make.gpus(10))
        stage.lead()
        yield stage


async def charged(stage, *names):
    for number, name in enumerate(names):
        stage.queue(name, created=number)
    await until(lambda: stage.listed() == set(names))
    await stage.looks()
    assert all(map(stage.is_gated, names))


def keep_room(stage, *names, hold="h1", on="n0"):
    """Do what the evictor does before it evicts: the node's taint, and the pods that tolerate it."""
    node = stage.api.objects[NODES][f"/{on}"]
    taint = {"key": keys.HELD, "value": hold, "effect": "NoSchedule"}
    stage.api.put(NODES, on, **(node | {"spec": {"taints": [taint]}}))
    for name in names:
        pod = stage.pod(name)
        toleration = {"key": keys.HELD, "operator": "Equal", "value": hold, "effect": "NoSchedule"}
        change(stage, name, tolerations=[*pod["spec"].get("tolerations", ()), toleration])


def change(stage, name, **spec):
    pod = stage.pod(name)
    stage.api.put(PODS, name, namespace="team-a", **(pod | {"spec": pod["spec"] | spec}))


def evict(stage, *numbers):
    for number in numbers:
        stage.api.delete(PODS, f"b{number}", namespace="team-b")


def named(stage, name="p"):
    """The nodes that a pod may use."""
    text = json.dumps(stage.pod(name)["spec"].get("affinity", {}))
    return {node for node in ("n0", "n1") if f'"{node}"' in text}


async def test_it_keeps_its_gate_until_a_node_keeps_its_room_and_the_victim_is_gone(tmp_path):
    async with borrowed(tmp_path) as stage:
        await charged(stage, "p")
        (entry,) = stage.api.objects[TEAM_LEDGERS]["/team-a"]["ledger"]["inFlight"]
        assert (entry["reclaims"], entry["tier"], entry["node"]) == (True, "guaranteed", "n0")
        assert stage.world.usage(A).guaranteed == make.gpus(1), "it counts from now on"
        keep_room(stage, "p")
        await stage.looks()
        assert stage.is_gated()
        evict(stage, 0)
        await until(lambda: not stage.is_gated())
        assert stage.pod()["metadata"]["labels"][keys.TIER] == "guaranteed"
        assert named(stage) == {"n0"}
        assert [each["value"] for each in stage.pod()["spec"]["tolerations"]] == ["h1"]
        assert stage.patches() == ["p"], "one patch is all that it costs"
        assert json.loads(stage.pod()["metadata"]["annotations"][keys.DECISION])["demand"] == {builders.GPU: "1"}
        await until(lambda: not stage.listed())
        assert stage.releaser.counts.released == {(A, "inTurn"): 1}


async def test_no_more_start_than_victims_went(tmp_path):
    async with borrowed(tmp_path) as stage:
        names = ("p0", "p1", "p2")
        await charged(stage, *names)
        keep_room(stage, *names)
        evict(stage, 0, 1)
        await until(lambda: sum(map(stage.is_gated, names)) == 1)
        await stage.looks()
        assert list(map(stage.is_gated, names)) == [False, False, True]
        evict(stage, 2)
        await until(lambda: not stage.is_gated("p2"))


async def test_without_an_evictor_it_waits_in_kube_scheduler_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(awaited_room, "UNHELD_SECONDS", 1.0)
    async with borrowed(tmp_path) as stage:
        await charged(stage, "p")
        await until(lambda: not stage.is_gated())
        assert "requiredDuring" not in json.dumps(stage.pod()["spec"]), "wherever room comes free"


async def test_the_next_leader_goes_on_with_it(tmp_path):
    async with borrowed(tmp_path) as old:
        await charged(old, "p")
        async with replica(tmp_path, old.api, old.connection) as new:
            await until(lambda: new.listed() == {"p"})
            await old.die()
            new.lead()
            await new.looks(10)
            assert new.is_gated()
            keep_room(new, "p")
            evict(new, 0)
            await until(lambda: not new.is_gated())
            await until(lambda: not new.listed())
            assert new.releaser.counts.released == {(A, "inTurn"): 1}


async def test_a_pod_that_its_owner_changes_meanwhile_goes_back_to_the_line_and_gives_its_charge_back(tmp_path):
    """Else a user could have room made for a small pod and start another one in it."""
    async with borrowed(tmp_path) as stage:
        await charged(stage, "p")
        change(stage, "p", nodeSelector={"zone": "moon"})
        keep_room(stage, "p")
        evict(stage, 0)
        await until(lambda: not stage.listed())
        await stage.looks()
        assert stage.is_gated()
        assert stage.world.usage(A).guaranteed == 0


async def test_annotations_that_decide_nothing_may_change_meanwhile(tmp_path):
    async with borrowed(tmp_path) as stage:
        await charged(stage, "p")
        stage.touch()
        keep_room(stage, "p")
        evict(stage, 0)
        await until(lambda: not stage.is_gated())


async def test_a_pod_that_is_deleted_meanwhile_counts_no_longer_and_the_next_one_has_its_turn(tmp_path):
    async with borrowed(tmp_path, guaranteed=1) as stage:
        await charged(stage, "p")
        stage.queue("q", created=9)
        await stage.looks()
        assert stage.listed() == {"p"}
        stage.api.delete(PODS, "p", namespace="team-a")
        await until(lambda: stage.listed() == {"q"})
        assert stage.is_gated("q")


async def test_it_gets_no_charge_for_room_that_no_reclaim_makes(tmp_path):
    async with borrowed(tmp_path) as stage:
        stage.queue("p", 11)
        stage.queue("q", 1, created=1)
        await until(lambda: stage.listed() == {"q"})
        await stage.looks()
        assert stage.listed() == {"q"}
