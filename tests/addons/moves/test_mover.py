"""Moves as the evictor makes them, against an API server: places first, then evictions, and nothing blindly."""

import json
from collections import deque

import pytest

from tests.addons.moves.moving import REPORTS, held, job_pod, place, rules, scatter, turns, wide
from tests.cluster.support.fake_api import Answer
from tests.evictor.support.stage import PODS
from webhook.kube.objects import keys


def hold_of(stage, node):
    text = stage.api.objects["/api/v1/nodes"][f"/{node}"]["metadata"].get("annotations", {}).get(keys.HOLD)
    return None if text is None else json.loads(text)


def messages(stage, reason):
    return [event.message for event in stage.events if event.reason == reason]


async def test_a_pod_moves_once_its_place_is_kept_and_both_pods_get_what_is_kept_for_them(stage):
    scatter(stage, "n0", "n1")
    uid = wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: stage.real_evictions() == 1)
        assert "j-n0" not in stage.names()
        asked = [(each.verb, each.path) for each in stage.api.asked]
        kept = asked.index(("patch", "/api/v1/nodes/n1"))
        evicted = [n for n, (_, path) in enumerate(asked) if path.endswith("/pods/j-n0/eviction")]
        assert kept < evicted[-1]
        [kept_place] = hold_of(stage, "n1")["places"]
        assert (kept_place["key"], kept_place["requests"]["nvidia.com/gpu"]) == ("Job team-a/j-n0", 1)
        await stage.until(lambda: stage.locked().get("n0") == [uid])
        again = job_pod(stage, "j-n0-again", job="j-n0")
        await stage.until(lambda: stage.locked().get("n1") == [again])
        place(stage, "wide", "n0")
        place(stage, "j-n0-again", "n1", team="team-a")
        await stage.until(lambda: held(stage) == {})
        await turns()
        assert stage.real_evictions() == 1
        [entry] = stage.api.objects[REPORTS]["/moves"]["moves"]
        assert (entry["pod"], entry["source"], entry["destination"]) == ("team-a/j-n0", "n0", "n1")
        assert entry["for"] == "team-b/wide"


async def test_without_the_policy_nothing_moves(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(on_demand=False)):
        await turns()
        assert (stage.real_evictions(), held(stage)) == (0, {})


async def test_a_disruption_budget_that_allows_none_keeps_all_pods_and_an_event_says_so(stage):
    scatter(stage, "n0", "n1")
    stage.budget(allowed=0)
    wide(stage)
    async with stage.leader(rules()):
        await stage.until(lambda: messages(stage, "CannotMakeRoom") != [])
        await turns()
        assert (stage.real_evictions(), held(stage)) == (0, {})
        [text] = messages(stage, "CannotMakeRoom")
        assert "do not make enough room on any one node" in text
        assert "their" not in text
        assert "its PodDisruptionBudgets allow no eviction now" in text


async def test_notice_comes_first_and_is_withdrawn_where_the_pod_no_longer_waits(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(notice_seconds=30)):
        notes = lambda: stage.api.objects[PODS]["team-a/j-n0"]["metadata"]["annotations"]  # noqa: E731
        await stage.until(lambda: keys.EVICT_AT in notes())
        assert stage.real_evictions() == 0
        [text] = messages(stage, "EvictionPlanned")
        assert "it moves to node n1, which makes room for pods of team team-b (4 GPUs each) on node n0" in text
        stage.api.delete(PODS, "wide", namespace="team-b")
        await stage.until(lambda: notes().get(keys.EVICT_AT) is None)
        await stage.until(lambda: held(stage) == {})
        await turns(60)
        assert stage.real_evictions() == 0


async def test_a_plan_stops_where_another_pod_takes_a_place(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(notice_seconds=30)):
        await stage.until(lambda: "n0" in held(stage))
        stage.pod("daemon", "team-a", "guaranteed", gpus=2, node="n1")
        await stage.until(lambda: held(stage) == {})
        await turns(60)
        assert stage.real_evictions() == 0


async def test_the_next_leader_goes_on_with_what_the_nodes_say(stage):
    scatter(stage, "n0", "n1")
    uid = wide(stage)
    async with stage.leader(rules(notice_seconds=30)):
        await stage.until(lambda: "n0" in held(stage) and keys.EVICT_AT in str(stage.api.objects[PODS]["team-a/j-n0"]))
    async with stage.leader(rules(notice_seconds=30)):
        await stage.until(lambda: stage.real_evictions() == 1, seconds=60)
        again = job_pod(stage, "j-n0-again", job="j-n0")
        await stage.until(lambda: stage.locked() == {"n0": [uid], "n1": [again]})


async def test_what_was_under_way_ends_by_its_time_where_the_next_leader_moves_no_pods(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(notice_seconds=30)):
        await stage.until(lambda: "n0" in held(stage) and keys.EVICT_AT in str(stage.api.objects[PODS]["team-a/j-n0"]))
    stage.addons = ()
    async with stage.leader(rules(notice_seconds=30)):
        await stage.until(lambda: stage.locked() == {} and not stage.taints("n0") + stage.taints("n1"), seconds=600)
        await turns(60)
        assert stage.real_evictions() <= 1
        assert stage.locked() == {}


async def test_a_leader_that_only_kept_places_loses_nothing(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    note = {
        "id": "old",
        "until": "2100-01-01T00:00:00Z",
        "for": [],
        "since": "2020-01-01T00:00:00Z",
        "places": [
            {
                "key": "Job team-a/j-n0",
                "name": "team-a/j-n0",
                "team": "team-a",
                "requests": {"nvidia.com/gpu": 1},
                "replaces": stage.api.objects[PODS]["team-a/j-n0"]["metadata"]["uid"],
            }
        ],
    }
    node = stage.api.objects["/api/v1/nodes"]["/n1"]
    annotated = {**node["metadata"], "annotations": {keys.HOLD: json.dumps(note)}}
    stage.api.keep("/api/v1/nodes", "/n1", {**node, "metadata": annotated})
    async with stage.leader(rules(on_demand=False)):
        await stage.until(lambda: hold_of(stage, "n1") is None)
        assert stage.real_evictions() == 0


async def test_a_workload_whose_pod_does_not_come_back_is_left_alone(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    async with stage.leader(rules(moves_per_workload=9)):
        await stage.until(lambda: stage.real_evictions() == 1)
        place(stage, "wide", "n0")
        await stage.until(lambda: held(stage) == {}, seconds=300)
        stage.api.delete(PODS, "wide", namespace="team-b")
        job_pod(stage, "j-n0-again", job="j-n0", on="n0")
        wide(stage, "more")
        await turns(120)
        assert stage.real_evictions() == 1


async def test_the_bounds_of_an_hour_hold_for_the_next_leader(stage):
    scatter(stage, "n0", "n1")
    uid = wide(stage)
    assert uid
    async with stage.leader(rules(moves_per_hour=1)):
        await stage.until(lambda: stage.real_evictions() == 1)
    place(stage, "wide", "n0")
    stage.api.delete(PODS, "wide", namespace="team-b")
    job_pod(stage, "third", on="n0")
    wide(stage, "more")
    async with stage.leader(rules(moves_per_hour=1)):
        await stage.until(
            lambda: any("in this hour" in text for text in messages(stage, "CannotMakeRoom")), seconds=300
        )
        assert stage.real_evictions() == 1


@pytest.mark.parametrize(("movable", "want"), [({}, 0), ({"fairgate.dev/movable": "true"}, 1)])
async def test_a_guaranteed_pod_moves_only_if_its_owner_says_so(stage, movable, want):
    scatter(stage, "n0", "n1", tier="guaranteed", **movable)
    wide(stage)
    async with stage.leader(rules()):
        if want:
            await stage.until(lambda: stage.real_evictions() == want)
        await turns(60)
        assert stage.real_evictions() == want


async def test_no_pod_is_evicted_before_the_move_is_written_where_the_next_leader_reads_it(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    refused = stage.api.faults[f"patch {REPORTS}/moves"]
    refused.extend([Answer(403)] * 3)
    async with stage.leader(rules()):
        await stage.until(lambda: len(refused) == 1)
        await turns(1)
        assert (stage.real_evictions(), held(stage)) == (0, {})
        await stage.until(lambda: stage.real_evictions() == 1, seconds=120)
        assert refused == deque()


async def test_pods_that_cannot_be_read_stay(stage):
    scatter(stage, "n0", "n1")
    wide(stage)
    stage.api.faults["get /api/v1/namespaces/team-a/pods/j-n0"].extend([Answer(404)] * 3)
    async with stage.leader(rules()):
        await stage.until(lambda: messages(stage, "CannotMakeRoom") != [])
        assert stage.real_evictions() == 0
        await stage.until(lambda: stage.real_evictions() == 1, seconds=120)
