"""Idle pods are marked, reported and counted; without a reading nothing is said of any pod."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from tests.addons.idle.watching import SINCE, watching
from tests.evictor.support.stage import PODS
from webhook.addons.idle import idle_gpus
from webhook.addons.idle.idle_gpus import LOOK_SECONDS
from webhook.core.model.policy import Enforcement

MINUTE = 60
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}


async def test_an_idle_pod_is_marked_and_reported_on_itself_and_its_owner(stage):
    stage.node("n0")
    stage.borrower("a", on="n0", gpus=2, ownerReferences=[OWNER])
    stage.borrower("busy", on="n0")
    async with watching(stage, "report", "prefer") as found:
        found.prometheus.use("a", 0.0, 1.0)
        found.prometheus.use("busy", 80.0)
        await asyncio.sleep(8 * MINUTE)
        assert not found.is_marked("a")
        await asyncio.sleep(4 * MINUTE)
        assert (found.is_marked("a"), found.is_marked("busy")) == (True, False)
        text = "2 GPUs were used less than 5 % for 10m; while it borrows, it is evicted before pods that use their GPUs"
        assert [event.message for event in stage.events] == [f"its {text}"]
        (notice,) = stage.notices
        assert (notice.owner.name, notice.message) == ("web-1", f"pod a: its {text}")
        ((kind, pod, told),) = stage.messages
        assert (kind, pod.team, pod.name, told) == ("idle", "team-a", "a", text)
        assert found.value("fairgate_idle_gpus", team="team-a") == 2
        assert found.value("fairgate_idle_pods", state="idle") == 1
        assert found.value("fairgate_idle_pods", state="used") == 1
        assert found.value("fairgate_idle_gpu_seconds_total", team="team-a") > 2 * 9 * MINUTE

        found.prometheus.use("a", 0.0, 60.0)
        await asyncio.sleep(2 * MINUTE)
        assert not found.is_marked("a")
        assert found.value("fairgate_idle_gpus", team="team-a") == 0


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"status": 503}, "it answered 503"),
        ({"wait_seconds": 3600.0}, "it did not answer within"),
        ({"late_seconds": 600.0}, "it is late"),
        ({"series": {}}, "has no series of GPUs of pods with job=dcgm"),
    ],
    ids=["away", "slow", "late", "without series"],
)
async def test_without_a_reading_no_pod_stays_idle(stage, change, want):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage) as found:
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(12 * MINUTE)
        assert found.is_marked("a")
        for name, value in change.items():
            setattr(found.prometheus, name, value)
        await asyncio.sleep(4 * MINUTE)
        assert want in found.idle.problem
        assert not found.is_marked("a")
        assert found.value("fairgate_idle_pods", state="unknown") == 1


async def test_a_gap_of_one_pod_is_no_idleness_of_it(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    stage.borrower("b", on="n0")
    async with watching(stage) as found:
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(20 * MINUTE)
        assert (found.is_marked("a"), found.is_marked("b"), found.idle.problem) == (True, False, "")


async def test_a_mark_that_a_user_made_is_removed(stage):
    stage.node("n0")
    async with watching(stage) as found:
        await asyncio.sleep(MINUTE)
        stage.borrower("a", on="n0", annotations={SINCE: "2020-01-01T00:00:00Z"})
        found.prometheus.use("a", 90.0)
        await asyncio.sleep(2 * MINUTE)
        assert not found.is_marked("a")


async def test_marks_end_with_the_rules(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage) as found:
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(12 * MINUTE)
        assert found.is_marked("a")
        found.view.set_policy(stage.policy)
        await asyncio.sleep(MINUTE + 2 * LOOK_SECONDS)
        assert not found.is_marked("a")
        asked = len(found.prometheus.asked)
        await asyncio.sleep(5 * MINUTE)
        assert len(found.prometheus.asked) == asked


@pytest.mark.parametrize("why", ["not leading", "not enforced"])
async def test_nothing_is_written_by_others_and_in_shadow_mode(stage, why):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage) as found:
        if why == "not leading":
            stage.is_leading = False
        else:
            policy = found.view.world.policy
            found.view.set_policy(replace(policy, enforce=Enforcement.SHADOW))
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(15 * MINUTE)
        assert not found.is_marked("a")
        assert stage.events == []
        assert found.value("fairgate_idle_gpus", team="team-a") == 1


async def test_writes_of_one_look_are_bounded(stage, monkeypatch):
    monkeypatch.setattr(idle_gpus, "MARKS", 3)
    for number in range(2):
        stage.node(f"n{number}")
        for pod in range(4):
            stage.borrower(f"p{number}-{pod}", on=f"n{number}")
    async with watching(stage) as found:
        for number in range(2):
            for pod in range(4):
                found.prometheus.use(f"p{number}-{pod}", 0.0)
        counts = []
        for _ in range(14):
            await asyncio.sleep(MINUTE)
            counts.append(sum(SINCE in (body["metadata"].get("annotations") or {}) for body in _pods(stage)))
        steps = [later - before for before, later in itertools.pairwise(counts)]
        assert (max(steps), counts[-1]) == (3, 8)


def _pods(stage):
    return list(stage.api.objects[PODS].values())


async def test_a_new_leader_continues_what_was_found(stage):
    stage.node("n0")
    stage.borrower("a", on="n0")
    async with watching(stage) as found:
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(12 * MINUTE)
        since = found.annotations("a")[SINCE]
    async with watching(stage) as found:
        found.prometheus.use("a", 0.0)
        await asyncio.sleep(2 * MINUTE)
        assert found.annotations("a")[SINCE] == since
    assert stage.reasons() == ["Idle"]
