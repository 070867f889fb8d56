"""Idle pods are evicted after a notice, and Notebooks stopped; nothing happens on doubt."""

import asyncio
from dataclasses import replace

import pytest

from tests.addons.idle.watching import EVICT_AT, watching
from tests.cluster.support.fake_api import Answer
from webhook.core.model.policy import ReclaimRules
from webhook.kube.pod.pods import unix_seconds

MINUTE = 60
SETS, NOTEBOOKS = "/apis/apps/v1/statefulsets", "/apis/kubeflow.org/v1/notebooks"
NOTICE = 300


async def idle_for(minutes):
    await asyncio.sleep(minutes * MINUTE)


def notebook(stage, name="nb"):
    """A pod of a StatefulSet of a Notebook."""
    made = stage.api.put(NOTEBOOKS, name, namespace="team-a", metadata={})
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": name, "controller": True}
    owner |= {"uid": made["metadata"]["uid"]}
    made = stage.api.put(SETS, name, namespace="team-a", metadata={"ownerReferences": [owner]})
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "controller": True}
    stage.borrower(f"{name}-0", on="n0", ownerReferences=[owner | {"uid": made["metadata"]["uid"]}])
    return f"{name}-0"


def stopped(stage, name="nb"):
    return (stage.api.objects[NOTEBOOKS][f"team-a/{name}"]["metadata"].get("annotations") or {}).get(
        "kubeflow-resource-stopped"
    )


async def test_an_idle_pod_is_announced_and_then_evicted(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    stage.borrower("busy", on="n0")
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", 0.0)
        found.prometheus.use("busy", 50.0)
        await idle_for(12)
        announced = unix_seconds(found.annotations("a")[EVICT_AT])
        assert 0 < announced - stage.now() <= NOTICE
        assert stage.real_evictions() == 0
        await idle_for(7)
        assert stage.names() == {"busy"}
        assert stage.real_evictions() == 1
        assert stage.reasons() == ["EvictionPlanned", "IdleEvicted"]
        assert found.value("fairgate_idle_evictions_total", team="team-a") == 1
        ((kind, pod, told),) = stage.messages
        assert (kind, pod.team, pod.name) == ("evictions", "team-a", "a")
        assert told.startswith("it has not used its 1 GPU since 20")


async def test_a_pod_that_uses_its_gpus_again_keeps_them(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", 0.0)
        await idle_for(12)
        assert EVICT_AT in found.annotations("a")
        found.prometheus.use("a", 50.0)
        await idle_for(10)
        assert EVICT_AT not in found.annotations("a")
        assert (stage.names(), stage.reasons()[-1]) == ({"a"}, "EvictionCancelled")


async def test_without_a_reading_no_announced_pod_is_evicted(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", 0.0)
        await idle_for(12)
        assert EVICT_AT in found.annotations("a")
        found.prometheus.status = 503
        await idle_for(30)
        assert stage.real_evictions() == 0
        assert EVICT_AT not in found.annotations("a")


@pytest.mark.parametrize(("percent", "want"), [(0.0, set()), (60.0, {"a"})], ids=["idle", "used again"])
async def test_a_new_leader_continues_what_was_announced(stage, percent, want):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", 0.0)
        await idle_for(12)
        assert EVICT_AT in found.annotations("a")
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", percent)
        await idle_for(7)
        assert stage.names() == want
        assert not want or EVICT_AT not in found.annotations("a")
    assert stage.reasons().count("EvictionPlanned") == 1


@pytest.mark.parametrize("announced", ["2999-01-01T00:00:00Z", "1999-01-01T00:00:00Z"], ids=["late", "early"])
async def test_an_announcement_that_a_user_wrote_neither_delays_nor_hastens_much(stage, announced):
    stage.node("n0")
    stage.borrower("a", on="n0", annotations={EVICT_AT: announced})
    async with watching(stage, "evict", notice_seconds=NOTICE) as found:
        found.prometheus.use("a", 0.0)
        await idle_for(9)
        assert stage.real_evictions() == 0
        await idle_for(10)
        assert stage.names() == set()


async def test_protected_pods_and_those_in_their_minimum_runtime_stay(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage, "evict", notice_seconds=0) as found:
        policy = found.view.world.policy
        found.view.set_policy(replace(policy, reclaim=ReclaimRules(protected_namespaces=("team-*",))))
        found.prometheus.use("a", 0.0)
        await idle_for(30)
        assert (stage.names(), stage.real_evictions()) == ({"a"}, 0)


async def test_a_refused_eviction_is_tried_again_later_and_said(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    stage.budget(allowed=0)
    stage.api.always["post"] = Answer(429)
    async with watching(stage, "evict", notice_seconds=0) as found:
        found.prometheus.use("a", 0.0)
        await idle_for(14)
        assert stage.reasons() == ["EvictionRefused"]
        assert stage.names() == {"a"}


async def test_a_notebook_is_stopped_before_its_pod_goes(stage):
    stage.node("n0")
    name = notebook(stage)
    async with watching(stage, "evict", notice_seconds=0) as found:
        found.prometheus.use(name, 0.0)
        await idle_for(13)
        assert unix_seconds(stopped(stage)) <= stage.now()
        assert stage.names() == set()
        assert "Notebook nb is stopped: start it again when you need it" in stage.events[-1].message


async def test_a_notebook_whose_pod_a_budget_keeps_is_not_stopped(stage):
    """Its controller would delete the pod past the budget."""
    stage.node("n0")
    name = notebook(stage)
    stage.budget(allowed=0)
    stage.api.always["post"] = Answer(429)
    async with watching(stage, "evict", notice_seconds=0) as found:
        found.prometheus.use(name, 0.0)
        await idle_for(14)
        assert (stage.names(), stage.reasons(), stopped(stage)) == ({name}, ["EvictionRefused"], None)


async def test_a_notebook_that_cannot_be_stopped_keeps_its_pod(stage):
    stage.node("n0")
    name = notebook(stage)
    path = "/apis/kubeflow.org/v1/namespaces/team-a/notebooks/nb"
    stage.api.faults[f"patch {path}"].extend([Answer(403)] * 20)
    async with watching(stage, "evict", notice_seconds=0) as found:
        found.prometheus.use(name, 0.0)
        await idle_for(14)
        assert (stage.names(), stage.real_evictions()) == ({name}, 0)
        assert "its Notebook cannot be stopped" in stage.events[-1].message


async def test_a_pod_that_is_created_again_and_again_is_evicted_all_the_same(stage):
    """Its owner deletes it before its time is over, and creates it again under its name."""
    stage.node("n0")
    async with watching(stage, "evict", notice_seconds=0) as found:
        found.prometheus.use("a", 0.0)
        for _ in range(3):
            stage.borrower("a", on="n0")
            await idle_for(4)
            if "a" in stage.names():
                stage.api.delete("/api/v1/pods", "a", namespace="team-a")
            await asyncio.sleep(5)
        assert stage.real_evictions() == 1
