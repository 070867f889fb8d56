"""Bounds of the evictor's waits: for budgets, grace periods, holds, and for teams that use no room."""

import asyncio

from tests.cluster.support.fake_api import Answer, Slow
from tests.core.support import make
from tests.evictor.support.stage import HELD_NODES, PODS, POOR
from tests.evictor.test_executor import fill
from webhook.core.model.policy import ReclaimRules
from webhook.core.reclaim import reclaim
from webhook.evictor import hold_manager
from webhook.evictor.unevictable import TOGETHER_SECONDS
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys

BOUND = ReclaimRules().longest_grace_seconds
YEAR = 86_400 * 365
GUARD = f"patch {HELD_NODES}/fairgate"
GIVEN_UP = 30 + hold_manager.HOLD_SECONDS
"""When an unused hold ends: after the grace period of the victims."""


async def test_the_room_is_kept_until_it_is_given_up(stage):
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        assert stage.room_of("b") == "n0"
        await asyncio.sleep(GIVEN_UP)
        await stage.until(lambda: stage.room_of("b") is None)


async def test_kube_scheduler_is_made_to_try_a_pod_once_whose_free_room_it_does_not_notice(stage):
    """As where a pod is gone whose anti-affinity selected namespaces by their labels: no hint tells of that."""
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        owner = lambda: stage.api.objects[PODS]["team-b/b"]["metadata"]  # noqa: E731
        assert keys.RETRY not in owner().get("labels", {})
        await stage.until(lambda: keys.RETRY in owner().get("labels", {}))
        version = owner()["resourceVersion"]
        await asyncio.sleep(hold_manager.IDLE_SECONDS)
        assert owner()["resourceVersion"] == version, "once for each hold"
        assert stage.room_of("b") == "n0", "while the room is still kept"


async def test_no_more_is_evicted_than_kube_scheduler_may_place_soon(stage, monkeypatch):
    monkeypatch.setattr(reclaim, "UNDER_WAY", 2)
    fill(stage, "n0", "n1")
    async with stage.leader():
        for number in range(5):
            stage.asker(f"b{number}")
        await stage.until(lambda: stage.real_evictions() == 2)
        await asyncio.sleep(20)
        assert stage.real_evictions() == 2
        served = [name for name in ("b0", "b1", "b2", "b3", "b4") if stage.room_of(name)]
        for name in served:
            stage.bind(name, stage.room_of(name))
        await stage.until(lambda: stage.real_evictions() == 4)


async def test_victims_with_a_notice_do_not_count_as_free_room(stage, monkeypatch):
    """Their time may be long, and others' reclaim of the same team is not to wait for it."""
    monkeypatch.setattr(reclaim, "UNDER_WAY", 1)
    fill(stage, "n0", "n1")
    async with stage.leader(make.policy(*POOR.teams, reclaim=ReclaimRules(notice_seconds=60))):
        stage.asker("b0")
        await stage.until(lambda: stage.room_of("b0") is not None)
        stage.asker("b1")
        await stage.until(lambda: stage.room_of("b1") is not None)
        assert stage.real_evictions() == 0


async def test_the_next_leader_gives_up_the_room_that_an_earlier_one_kept(stage):
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
    async with stage.leader():
        await asyncio.sleep(GIVEN_UP)
        await stage.until(lambda: stage.room_of("b") is None)


async def test_a_grace_period_of_a_year_is_cut(stage):
    stage.node("n0")
    stage.borrower("a", on="n0", gpus=4, terminationGracePeriodSeconds=YEAR)
    async with stage.leader():
        stage.asker("b")
        await stage.until(lambda: stage.real_evictions() == 1)
        assert {each["deleteOptions"]["gracePeriodSeconds"] for each in stage.api.evictions} == {BOUND}
        await asyncio.sleep(BOUND + GIVEN_UP)
        await stage.until(lambda: not stage.taints("n0"))


async def test_budgets_that_allow_no_eviction_are_overridden_after_a_while(stage):
    fill(stage, "n0")
    stage.budget()
    stage.api.always["post"] = Answer(429)
    async with stage.leader():
        stage.asker("b")
        await asyncio.sleep(299)
        assert len(stage.names()) == 5
        await asyncio.sleep(60)  # the rest after the last refusal
        await stage.until(lambda: len(stage.names()) == 4)
    assert stage.real_evictions() == 0


async def test_progress_of_other_pods_prolongs_no_hold_indefinitely(stage):
    """Pods that are bound prolong a hold, and with it the room of one that never starts."""
    fill(stage, "n0")
    async with stage.leader():
        stage.asker("never")
        await stage.until(lambda: stage.room_of("never") == "n0")
        began, number = stage.now(), 0
        while stage.room_of("never") is not None:
            assert stage.now() - began < BOUND + 400
            number += 1
            stage.asker(f"c{number}")
            await stage.until(lambda name=f"c{number}": len(stage.tolerations(name)) > 0 or not stage.room_of("never"))
            stage.bind(f"c{number}", "n0")
            await asyncio.sleep(45)
            stage.api.delete(PODS, f"c{number}", namespace="team-b")
            stage.borrower(f"again{number}", on="n0")
        assert stage.now() - began > BOUND


async def test_a_team_whose_pods_do_not_use_freed_room_is_paused(stage):
    stage.node("n0")
    stage.borrower("a0", on="n0", gpus=4)
    async with stage.leader():
        for number in range(4):
            stage.asker(f"b{number}")
            await stage.until(lambda number=number: stage.real_evictions() == number + 1)
            stage.api.delete(PODS, f"b{number}", namespace="team-b")
            await stage.until(lambda: not stage.taints("n0"))
            began = stage.now()
            stage.borrower(f"a{number + 1}", on="n0", gpus=4)
            await asyncio.sleep(TOGETHER_SECONDS)
        stage.asker("last")
        await stage.until(lambda: stage.real_evictions() == 5)
        assert 8 < stage.now() - began < 15, "the fourth in a row costs ten seconds"


async def test_a_gang_is_planned_for_as_soon_as_it_stopped_growing(stage):
    fill(stage, "n0")
    gang = {"training.kubeflow.org/job-name": "g"}
    async with stage.leader():
        created = rfc3339(int(stage.now()))
        stage.asker("b0", gang=gang, created=created)
        await asyncio.sleep(1)
        assert stage.real_evictions() == 0
        began = stage.now()
        await stage.until(lambda: stage.real_evictions() == 1)
        assert stage.now() - began < 4


async def ask_one_by_one(stage, count):
    """Add waiting pods a tenth of a second apart, until there is room for all."""
    for number in range(count):
        stage.asker(f"b{number}")
        await asyncio.sleep(0.1)
    await stage.until(lambda: stage.real_evictions() == count)


async def test_pods_that_come_while_a_look_is_slow_are_planned_together(stage):
    fill(stage, "n0", "n1", "n2")
    async with stage.leader():
        stage.api.faults[GUARD].extend([Slow(0.5)] * 9)
        await ask_one_by_one(stage, 12)
        assert len(stage.api.faults[GUARD]) == 7, "one write for the first pod, and one for the others"


async def test_the_longer_pods_keep_coming_the_more_are_planned_together(stage):
    fill(stage, *(f"n{number}" for number in range(5)))
    async with stage.leader():
        stage.api.faults[GUARD].extend([Slow(0)] * 20)
        await ask_one_by_one(stage, 20)
        assert len(stage.api.faults[GUARD]) >= 15, "plans after 0, 0.2, 0.6, 1.4 and 2.2 s"
