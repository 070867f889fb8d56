"""What one look at tiers writes: how many pods give way to minimums, and when a pod that failed is tried again."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Answer
from tests.server.leader.test_leader import patches, staged
from tests.server.support.harness import until
from webhook.core.model.amounts import WorkloadName
from webhook.server.leader import tiers
from webhook.server.leader.tiers import REST_SECONDS, Rests


def owned_by(name):
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": name, "controller": True}
    return {"ownerReferences": [owner]}


def scaled(stage, name, minimum):
    stage.world.minimums.set_scaler(name, WorkloadName(f"team-a/StatefulSet/{name}"), minimum)


async def test_few_pods_of_a_team_give_way_to_minimums_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "DISPLACED_AT_ONCE", 2)
    async with staged(tmp_path) as stage:
        scaled(stage, "web", 1)
        scaled(stage, "chat", 3)
        for number in range(4):
            stage.put(f"web{number}", "guaranteed", created=number, **owned_by("web"))
        for number in range(4):
            stage.put(f"chat{number}", "preemptible", created=10 + number, **owned_by("chat"))
        await until(lambda: len(patches(stage)) == 4)
        for _ in range(3):
            await stage.rest()
        assert sorted(patches(stage)) == ["chat0", "chat1", "web2", "web3"]
        await asyncio.sleep(tiers.DISPLACED_SECONDS)
        await until(lambda: len(patches(stage)) == 6)
        assert sorted(patches(stage)[4:]) == ["chat2", "web1"]


@pytest.mark.slow
async def test_a_pod_that_cannot_be_written_is_tried_ever_more_rarely_and_holds_up_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "REST_SECONDS", 0.5)
    monkeypatch.setattr(tiers, "LONGEST_REST_SECONDS", 32)
    async with staged(tmp_path) as stage:
        stage.api.faults["patch /api/v1/namespaces/team-a/pods/p"].extend([Answer(403)] * 100)
        stage.put("p", None, created=1)
        stage.put("q", None, created=2)
        await until(lambda: stage.labels()["q"])
        await asyncio.sleep(100 * tiers.REST_SECONDS)
        assert 4 < patches(stage).count("p") < 10
        assert patches(stage).count("q") == 1


async def test_rests_get_longer_up_to_a_bound_and_end_with_a_success():
    clock, rests = asyncio.get_running_loop().time, Rests()
    waited = []
    for _ in range(9):
        rests.failed("p")
        began = clock()
        while "p" in rests:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(REST_SECONDS)
        waited.append(round((clock() - began) / REST_SECONDS))
    assert waited == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    rests.succeeded("p")
    await asyncio.sleep(REST_SECONDS)
    rests.failed("p")
    await asyncio.sleep(REST_SECONDS)
    assert "p" not in rests
