"""Nodes that look free while a scheduler reports no room: room is made elsewhere, and never for one pod without end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.reclaim_pods import NOW, asker, borrower, indexed
from tests.examples import examples
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.placement.unused_nodes import NodeChanges
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, NoPlan
from webhook.core.reclaim.reclaim_pods import SchedulerReport
from webhook.core.reclaim.refused_nodes import (
    LOOKS_FREE_SECONDS,
    RETRY_SECONDS,
    SETTLED_SECONDS,
    RefusedNodes,
    unseen_text,
)
from webhook.core.reclaim.snapshot import pods_within_share, take_snapshot

POOR = make.policy(make.team(guaranteed=0), make.team("team-b"))
WHY = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) exceed max volume count"
ZONE = "topology.kubernetes.io/zone"


def refused(*, since=NOW, why=WHY, **more):
    """A pod of four GPUs that its scheduler finds no room for."""
    return asker("b", 4, report=SchedulerReport(since, is_for_room=True, why=why, **more))


def full(*nodes):
    return [borrower(f"{node}-{number}", 4, on=node) for node in nodes for number in range(2)]


def planned(waiting, *pods, nodes=2, zones=(), **known):
    reclaim_index, world = indexed(waiting, *pods, policy=POOR, nodes=0)
    for number in range(nodes):
        labels = {ZONE: zones[number]} if zones else {}
        world.set_node(make.node(f"n{number}", gpus=8, labels=labels))
    known = {
        "now": NOW + RETRY_SECONDS,
        "is_behind": lambda _, since: since + RETRY_SECONDS > NOW + RETRY_SECONDS,
    } | known
    there = take_snapshot(reclaim_index, world, now=NOW, refused_nodes=RefusedNodes(**known))
    return plan(pods_within_share(reclaim_index, world), there)


def outcome(*args, **more):
    """The node where room is made for the pod, or why none is."""
    found = planned(*args, **more)
    return found.moves[0].node if found.moves else found.refused[0].cause


def changed(**at):
    changes = NodeChanges()
    for name, when in sorted(at.items(), key=lambda each: each[1]):
        changes.note(NodeName(name))
        changes.tick(when)
    return changes


def test_room_is_made_elsewhere_and_the_free_node_is_named():
    found = planned(refused(), *full("n0"))
    assert [(move.node, len(move.victims)) for move in found.moves] == [("n0", 1)]
    assert found.unseen == {"b": ("n1",)}
    assert (
        unseen_text(found.unseen[Uid("b")], refused())
        == f"kube-scheduler finds no room on n1: {WHY}; Fairgate cannot see why"
    )


def test_where_no_other_node_gets_room_the_cause_says_so():
    assert outcome(refused()) is NoPlan.ROOM_REFUSED


@pytest.mark.parametrize(
    ("at", "want"),
    [
        pytest.param(NOW - SETTLED_SECONDS, "n0", id="long before the report"),
        pytest.param(NOW, "n0", id="the scheduler had time to try the pod again"),
        pytest.param(NOW + 1, NoPlan.FITS, id="it may not have tried it again"),
    ],
)
def test_a_node_that_changed_is_open_until_the_scheduler_has_tried_it(at, want):
    assert outcome(refused(), *full("n0"), changes=changed(n1=at)) == want


def test_a_change_of_another_node_opens_none():
    assert outcome(refused(), *full("n0"), changes=changed(n0=NOW + 1)) == "n0"


def test_a_node_that_changes_all_the_time_does_not_stay_open():
    long = {Uid("b"): NOW + RETRY_SECONDS - LOOKS_FREE_SECONDS}
    assert outcome(refused(), *full("n0"), changes=changed(n1=NOW + 10), looked_free=long) == "n0"


def test_without_a_past_a_report_counts_once_it_is_old_enough():
    assert outcome(refused(), *full("n0"), is_behind=None, now=NOW + RETRY_SECONDS) == "n0"
    assert outcome(refused(), *full("n0"), is_behind=None, now=NOW + RETRY_SECONDS - 1) is NoPlan.FITS


def test_a_report_that_no_scheduler_wrote_closes_nothing():
    assert outcome(refused(why=""), *full("n0")) is NoPlan.FITS


def test_a_report_on_one_pod_closes_no_node_to_another():
    other = asker("c", 4, created=1)
    found = planned(refused(), other, *full("n0"))
    assert [(each.waiting.uid, each.cause) for each in found.refused] == [("c", NoPlan.FITS)]


def test_a_volume_of_another_zone_closes_all_nodes_of_the_zone():
    """No eviction there makes room: the cheapest victims are on n2, which is in the zone of n1."""
    pods = [*full("n0"), *(borrower(f"new-{number}", 4, on="n2", started_at=NOW) for number in range(2))]
    assert outcome(refused(), *pods, nodes=3, zones="abb") == "n2"
    assert outcome(refused(is_for_zone=True), *pods, nodes=3, zones="abb") == "n0"


def test_the_second_plan_is_made_elsewhere_if_it_can_be():
    tried = {Uid("b"): {NodeName("n0")}}
    assert outcome(refused(), *full("n0", "n2"), nodes=3, tried=tried) == "n2"
    assert outcome(refused(), *full("n0"), tried=tried) == "n0", "else once more there"


@given(
    st.lists(st.sampled_from(["full", "free", "mixed"]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-30, 15)), max_size=5),
)
@examples(100)
def test_no_pod_is_evicted_where_a_node_that_may_be_free_is_left(kinds, events):
    """A plan is made, or a node is open to the pod, or the cause is its scheduler's report or a lack of victims."""
    pods = [each for n, kind in enumerate(kinds) if kind != "free" for each in full(f"n{n}")[: 1 + (kind == "full")]]
    changes = changed(**{f"n{n}": NOW + at for n, at in events if n < len(kinds)})
    found = planned(refused(), *pods, nodes=len(kinds), changes=changes)
    open_nodes = {name for name, at in changes.latest() if at > NOW}
    free = {f"n{n}" for n, kind in enumerate(kinds) if kind != "full"}
    if free & open_nodes:
        assert [each.cause for each in found.refused] == [NoPlan.FITS]
    elif "full" in kinds:
        (move,) = found.moves
        assert isinstance(move, Move)
        assert kinds[int(move.node[1:])] == "full"
        assert set(found.unseen.get(Uid("b"), ())) == free
    else:
        assert [each.cause for each in found.refused] == [NoPlan.ROOM_REFUSED]
    assert planned(replace(refused()), *pods, nodes=len(kinds), changes=changes) == found
