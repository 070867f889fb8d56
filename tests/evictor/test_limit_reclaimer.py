"""Room under limits, against an API server: pods in line get borrowed GPUs back, each once, and without being held."""

import asyncio
from dataclasses import replace

import pytest

from tests.cluster.support.fake_api import Answer
from tests.evictor.support.line import borrowed, in_line, tree
from tests.evictor.support.stage import PODS
from webhook.core.model.policy import Enforcement, ReclaimRules
from webhook.evictor import limit_reclaimer
from webhook.evictor.unevictable import TOGETHER_SECONDS
from webhook.kube.objects import keys


def released(stage, name="b", *, on=None):
    """Do what the leader of the webhook does."""
    pod = stage.api.objects[PODS][f"team-b/{name}"]
    labels = {**pod["metadata"]["labels"], keys.TIER: "guaranteed"}
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    spec |= {"nodeName": on} if on else {}
    stage.api.keep(PODS, f"team-b/{name}", {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec})


def is_marked(stage, name="b"):
    pod = stage.api.objects[PODS].get(f"team-b/{name}")
    return pod is not None and keys.RECLAIMING in pod["metadata"].get("annotations", {})


def borrowers(stage):
    return sorted(name for name in stage.names() if name.startswith("a"))


async def looked(seconds=60.0):
    """Give the evictor's loop many turns, in the virtual time of the test."""
    await asyncio.sleep(seconds)


async def test_a_pod_inside_its_share_is_marked_before_its_victims_go_and_no_more_of_them_than_it_needs(stage):
    borrowed(stage)
    async with stage.leader(tree()):
        in_line(stage, gpus=2)
        await stage.until(lambda: stage.real_evictions() == 2)
        assert is_marked(stage)
        await looked(20)
        assert (stage.real_evictions(), len(borrowers(stage))) == (2, 2)
        assert (stage.taints("n0"), stage.taints("n1")) == ([], [])
        released(stage, on="n1")
        await looked()
    assert stage.real_evictions() == 2
    (plan,) = [event.message for event in stage.events if event.reason == "Reclaiming"]
    assert plan.startswith(
        "GPUs are freed under the limits of department left: team team-b's guaranteed share is 4, 0 taken"
    )
    assert "To be evicted: 2 pods of team team-a (2 GPUs)" in plan
    reclaimed = [event.message for event in stage.events if event.reason == "Reclaimed"]
    assert all("takes its share back for a pod of 2 GPUs" in text for text in reclaimed)
    assert len(reclaimed) == 2


async def test_where_the_limit_and_the_node_are_full_one_eviction_serves_both(stage):
    stage.node("n0")
    for number in range(4):
        stage.borrower(f"a{number}", on="n0")
    async with stage.leader(tree()):
        in_line(stage)
        await stage.until(lambda: stage.real_evictions() == 1)
        await looked(20)
        released(stage, on="n0")
        await looked()
    assert (stage.real_evictions(), len(borrowers(stage))) == (1, 3)


async def test_nothing_goes_for_a_pod_beyond_its_share_or_without_a_node(stage):
    borrowed(stage)
    async with stage.leader(tree()):
        in_line(stage, "beyond", gpus=5)
        in_line(stage, "nowhere", nodeSelector={"zone": "moon"})
        await looked()
        assert not is_marked(stage, "beyond")
        assert not is_marked(stage, "nowhere")
    assert stage.real_evictions() == 0


async def test_nothing_goes_while_policy_is_not_enforced_and_marks_are_withdrawn(stage):
    borrowed(stage)
    async with stage.leader(tree(reclaim=ReclaimRules(notice_seconds=30))):
        in_line(stage)
        await stage.until(lambda: is_marked(stage))
    async with stage.leader(replace(tree(), enforce=Enforcement.OFF)):
        await stage.until(lambda: not is_marked(stage))
        await looked()
    assert stage.real_evictions() == 0


async def test_a_victim_has_its_notice_and_keeps_running_if_the_pod_goes(stage):
    borrowed(stage)
    async with stage.leader(tree(reclaim=ReclaimRules(notice_seconds=30))):
        in_line(stage)

        def noticed():
            pods = stage.api.objects[PODS].values()
            return [pod for pod in pods if keys.EVICT_AT in pod["metadata"].get("annotations", {})]

        await stage.until(lambda: len(noticed()) == 1)
        assert noticed()[0]["metadata"]["annotations"][keys.EVICT_FOR] == "team-b"
        stage.api.delete(PODS, "b", namespace="team-b")
        await stage.until(lambda: not noticed())
        await looked()
    assert stage.real_evictions() == 0


async def test_the_next_leader_goes_on_with_the_same_pod_and_evicts_no_second_victim(stage):
    borrowed(stage)
    async with stage.leader(tree()):
        in_line(stage)
        await stage.until(lambda: stage.real_evictions() == 1)
    async with stage.leader(tree()):
        await looked(20)
        assert is_marked(stage)
        released(stage, on="n1")
        await looked()
    assert stage.real_evictions() == 1


async def test_a_victim_that_the_api_server_does_not_evict_is_replaced_by_another_one(stage):
    borrowed(stage)
    async with stage.leader(tree()):
        stage.api.always["post"] = Answer(403)
        in_line(stage)
        await stage.until(lambda: "EvictionRefused" in stage.reasons())
        del stage.api.always["post"]
        await stage.until(lambda: stage.real_evictions() == 1)


async def test_victims_with_a_budget_are_tried_out_once(stage):
    borrowed(stage)
    stage.budget()
    async with stage.leader(tree(reclaim=ReclaimRules(notice_seconds=30))):
        in_line(stage)
        await stage.until(lambda: is_marked(stage))
        await looked(20)
        assert ["dryRun" in sent["deleteOptions"] for sent in stage.api.evictions] == [True]
        await stage.until(lambda: stage.real_evictions() == 1)


async def test_all_pods_of_a_whole_gang_get_room_and_keep_it_until_they_start(stage):
    borrowed(stage)
    names = [f"b{number}" for number in range(3)]
    async with stage.leader(tree()):
        for name in names:
            in_line(stage, name, whole=3)
        await stage.until(lambda: stage.real_evictions() == 3)
        assert [is_marked(stage, name) for name in names] == [True] * 3
        await looked(limit_reclaimer.UNUSED_SECONDS - 10)
        assert [is_marked(stage, name) for name in names] == [True] * 3
        for number, name in enumerate(names):
            released(stage, name, on=f"n{number % 2}")
        await looked()
    assert stage.real_evictions() == 3


async def test_a_gang_that_loses_a_pod_before_the_eviction_gets_no_room(stage):
    borrowed(stage)
    async with stage.leader(tree(reclaim=ReclaimRules(notice_seconds=60))):
        for name in ("b0", "b1"):
            in_line(stage, name, whole=2)
        await stage.until(lambda: is_marked(stage, "b0") and is_marked(stage, "b1"))
        stage.api.delete(PODS, "b1", namespace="team-b")
        await stage.until(lambda: not is_marked(stage, "b0"))
        await looked()
    assert stage.real_evictions() == 0


class TestHostilePods:
    """Pods in line that never use the room cost others few evictions, whatever they do."""

    @pytest.mark.parametrize("whole", [0, 1])
    async def test_one_that_never_starts_loses_the_room_and_the_pauses_grow(self, stage, whole):
        """So does a gang whose owner writes that it is whole."""
        borrowed(stage)
        number = 4
        async with stage.leader(tree()):
            in_line(stage, whole=whole)
            await stage.until(lambda: is_marked(stage))
            for _ in range(120):  # an hour in which borrowers come back as soon as they may
                await looked(limit_reclaimer.UNUSED_SECONDS)
                if not is_marked(stage) and len(borrowers(stage)) < 4:
                    stage.borrower(f"a{number}", on="n0")
                    number += 1
        assert 2 <= stage.real_evictions() <= 10

    async def test_room_is_kept_for_it_and_not_evicted_for_again_while_it_waits(self, stage):
        borrowed(stage)
        async with stage.leader(tree()):
            in_line(stage)
            await stage.until(lambda: stage.real_evictions() == 1)
            await looked(limit_reclaimer.UNUSED_SECONDS - 10)
            assert is_marked(stage)
        assert stage.real_evictions() == 1

    async def test_pods_that_are_deleted_and_created_again_make_their_team_wait(self, stage):
        await self.come_and_go(stage, rounds=40)
        assert 2 <= stage.real_evictions() <= 12

    async def test_pods_that_start_and_end_at_once_make_their_team_wait(self, stage):
        async def start(name):
            released(stage, name, on="n1")
            await looked(2)

        await self.come_and_go(stage, rounds=40, before_the_end=start)
        assert 2 <= stage.real_evictions() <= 12

    async def come_and_go(self, stage, *, rounds, before_the_end=None):
        """Put one pod after another in line and delete it; a borrower takes the place of each that was evicted."""
        borrowed(stage)
        number = 4
        async with stage.leader(tree()):
            for each in range(rounds):
                in_line(stage, f"b{each}")
                await looked(20 * TOGETHER_SECONDS)
                if before_the_end is not None:
                    await before_the_end(f"b{each}")
                stage.api.delete(PODS, f"b{each}", namespace="team-b")
                await looked(5)
                if len(borrowers(stage)) < 4:
                    stage.borrower(f"a{number}", on="n0")
                    number += 1
