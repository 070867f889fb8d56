"""Attempts of a namespace admin to have others' pods proposed for moves, or to have plans take all day."""

import time

import pytest

from tests import builders as b
from tests.addons.moves.command.test_defragment import HOUR, MOVABLE, moves, nodes, pending, pod, run, scattered, stays
from tests.addons.moves.made import fleet, movable, target
from tests.core.support.make import demand
from tests.core.support.scenes import NOW
from webhook.addons.moves.targets import MAX_GROUPS, Movement, make_room
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.reclaim.costs import STEPS

SAVED = "fairgate.dev/checkpointed-at"


def hostile(name, *, node, **annotations):
    return pod(name, node=node, namespace="small", annotations=annotations, started=3 * HOUR)


@pytest.mark.parametrize("mark", [{}, MOVABLE, {"fairgate.dev/movable": "false"}, {"fairgate.dev/movable": "x" * 9999}])
def test_what_a_tenant_marks_moves_no_pod_of_others(tmp_path, mark):
    theirs = pod("theirs", node="gpu-1", tier="guaranteed")
    own = [hostile(f"own-{n}", node="gpu-2", **mark) for n in range(2)]
    report = run(
        tmp_path, [*nodes(4, 4, 4), theirs, *own, pending("train", 4), pending("more", 4)], "--per-workload", "9"
    )
    proposed = {name for room in moves(report) for name, *_ in room}
    assert proposed <= {"small/own-0", "small/own-1"}
    assert stays(report) == {"Guaranteed": 1}


@pytest.mark.parametrize("at", ["2199-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_forged_checkpoint_has_only_own_pods_proposed(tmp_path, at):
    report = run(
        tmp_path, [*scattered(), hostile("own", node="gpu-3", **{SAVED: at}), pending("train", 3), pending("x", 4)]
    )
    costs = {move["pod"]: move["lostGpuHours"] for room in report["rooms"] for move in room["moves"]}
    assert costs.get("small/own", 0) == 0
    assert all(cost >= 0 for cost in costs.values())


@pytest.mark.parametrize("at", ["", "yesterday", "0000-00-00T00:00:00Z", "1970-01-01T00:00:00Z", "9" * 5000])
def test_a_checkpoint_that_is_none_costs_no_more_than_the_run_of_the_pod(tmp_path, at):
    found = [*nodes(4, 4), hostile("own", node="gpu-1", **{SAVED: at}), pod("b", 3, node="gpu-2", owner=None)]
    [room] = run(tmp_path, [*found, pending("train", 4)])["rooms"]
    assert room["lostGpuHours"] == pytest.approx(3, abs=0.1)


def test_own_budgets_and_volumes_keep_own_pods_alone(tmp_path):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    tied = pod("own", node="gpu-2", namespace="small", volumes=volumes)
    found = [*nodes(4, 4, 4), pod("a", node="gpu-1"), tied, pod("c", 2, node="gpu-3")]
    report = run(tmp_path, [*found, pending("train", 4)])
    assert moves(report) == [[("nlp/a", "gpu-1", "gpu-2")]]


def test_a_controller_that_does_not_exist_gains_nothing_for_its_pods(tmp_path):
    made = hostile("own", node="gpu-2")
    made["metadata"]["ownerReferences"][0] |= {"apiVersion": "nowhere/v1", "kind": "Nothing", "name": "n" * 200}
    report = run(tmp_path, [*nodes(4, 4), made, b.pod("fixed", node="gpu-1"), pending("train", 4)])
    assert [name for name, *_ in moves(report)[0]] == ["small/own"]


def test_a_crowd_of_pods_is_planned_for_within_bounds():
    pods = [movable(f"p{n}-{m}", on=f"n{n}", saved=m, cpu=1 + m) for n in range(40) for m in range(60)]
    there = fleet([64] * 40, [(each.node, each.victim.demand, each.uid) for each in pods])
    crowd = [target(64, name=f"x{n}", since=1, demand=demand(64, cpu=n + 1)) for n in range(5 * MAX_GROUPS)]
    movement = Movement(fleet=there, movable=pods, now=NOW, left={}, weights=BUILT_IN_RESOURCES, per_workload=1)
    began = time.process_time()
    found = make_room(crowd, movement, steps=STEPS // 20)
    assert len(found.rooms) + len(found.refused) == MAX_GROUPS
    assert found.rest == 4 * MAX_GROUPS
    assert time.process_time() - began < 60
