"""Moves that the evictor makes now, as commands and the page show them of nodes' holds."""

import json

import pytest

from tests.addons.moves.command import test_defragment, test_explained
from tests.addons.moves.command.test_defragment import ago, nodes, pod, run, scattered
from tests.addons.page.test_moves import shown
from tests.cli.queue.test_queue import gated
from webhook.kube.objects import keys

MOVES = "defragment: {onDemand: true, window: '22:00-02:00', timeZone: Europe/Berlin, minimumRuntime: 0s}\n"


@pytest.fixture
def by_policy(monkeypatch):
    policy = test_defragment.POLICY + MOVES
    for module in (test_defragment, test_explained):
        monkeypatch.setattr(module, "POLICY", policy)


def held(node, hold_id, **note):
    hold = {"id": hold_id, "until": ago(-60), "since": ago(3), "for": [], **note}
    node["metadata"]["annotations"] = {keys.HOLD: json.dumps(hold)}
    node["spec"]["taints"] = [{"key": keys.HELD, "value": hold_id, "effect": "NoSchedule"}]
    return node


def being_moved():
    """Pod b leaves gpu-2 for gpu-1, so that the first pod in line has room."""
    _, _, _, *pods = scattered()
    first = gated("first", gpus=4)
    uid = first["metadata"]["uid"]
    one, two, three = nodes(4, 4, 4)
    requests = {"nvidia.com/gpu": 1}
    moved = {"key": "ReplicaSet nlp/of-b", "name": "nlp/b", "team": "nlp", "requests": requests, "replaces": "uid-b"}
    target = {"namespace": "nlp", "name": "b", "uid": "uid-b", "at": ago(-30), "for": uid, "moved": True}
    wanted = {"key": uid, "name": "vision/first", "team": "vision", "requests": {"nvidia.com/gpu": 4}}
    pods[1]["metadata"]["annotations"] = {keys.EVICT_AT: target["at"], keys.EVICT_FOR: "vision"}
    return [
        held(one, "h1", places=[moved]),
        held(two, "h2", evict=[target], places=[wanted]),
        three,
        *pods,
        first,
    ], target["at"]


@pytest.mark.usefixtures("by_policy")
def test_the_command_shows_what_is_under_way_and_what_policy_says(tmp_path):
    found, _ = being_moved()
    report = run(tmp_path, found)
    assert report["underWay"] == [{"pod": "nlp/b", "team": "nlp", "to": "gpu-1"}]
    assert report["byPolicy"] == "for pods that wait and in 22:00-02:00 Europe/Berlin, at most 10 moves an hour"
    text = run(tmp_path, found, layout="table")
    assert "nlp/b is being moved to gpu-1" in text
    assert "the evictor moves pods for pods that wait and in" in text


def test_without_a_policy_of_moves_an_admin_makes_them(tmp_path):
    report = run(tmp_path, scattered())
    assert (report["underWay"], report["byPolicy"]) == ([], "")
    assert "evict the pods of a plan" in run(tmp_path, scattered(), layout="table")


@pytest.mark.usefixtures("by_policy")
def test_a_pod_that_ran_for_less_than_the_minimum_runtime_stays(tmp_path, monkeypatch):
    longer = test_defragment.POLICY.replace("minimumRuntime: 0s", "minimumRuntime: 2h")
    monkeypatch.setattr(test_defragment, "POLICY", longer)
    report = run(tmp_path, [*nodes(4, 4), pod("a", node="gpu-1"), pod("old", node="gpu-2", started=9000)])
    assert {each["cause"]: each["pods"] for each in report["stays"]} == {"MinimumRuntime": 1}


def test_a_pod_that_is_moved_is_explained(tmp_path):
    found, at = being_moved()
    report = test_explained.explained(tmp_path, found, "pod/b", namespace="nlp")
    assert report["eviction"]["movesTo"] == "gpu-1"
    text = test_explained.explained(tmp_path, found, "pod/b", namespace="nlp", layout="table")
    assert f"It will be evicted at {at}: it moves to gpu-1, which makes room for vision/first. Save its work" in text


def test_a_pod_in_line_that_room_is_made_for_is_explained(tmp_path):
    found, at = being_moved()
    text = test_explained.explained(tmp_path, found, "pod/first", layout="table")
    assert "4 GPUs on gpu-2 are kept for it" in text
    assert f"to be evicted for that: nlp/b at {at}" in text


@pytest.mark.usefixtures("by_policy")
def test_a_pod_that_waits_for_moves_says_who_makes_them(tmp_path):
    text = test_explained.explained(tmp_path, [*scattered(), gated("first", gpus=4)], "pod/first", layout="table")
    assert "the evictor makes them once policy's bounds allow it" in text


def test_the_page_shows_what_is_under_way():
    found, _ = being_moved()
    text = shown(found)
    assert "Under way nlp/ b of team" in text
    assert "moves to gpu-1 , which keeps a place for it" in text
    assert "vision/ first" not in text, "its room is being made"
