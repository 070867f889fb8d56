"""The benchmark of loans: its load, what its rules know, and a loan that is not made."""

from argparse import Namespace

import pytest

from benchmarks.loans import BORROWERS, OWNERS, RULES, Load, run
from benchmarks.loans_parts.helios import rows
from benchmarks.loans_parts.knowledge import CELL_SECONDS, LearnedReturns, TrueReturns, learned_run_times
from tests.builders import demand
from webhook.addons.simulation.task import Task
from webhook.addons.simulation.traces.formats import NodeRow, Row
from webhook.core.model.amounts import Namespace as PodNamespace
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.world.world import World

HOUR = 3_600
BEGIN = 1_700_000_000


def task(name: str, *, created: int, seconds: int, gpus: int = 1, team: str = BORROWERS) -> Task:
    pod = Pod(PodNamespace(team), demand(gpus=gpus), name=name)
    return Task(name, pod, team, BEGIN + created, seconds, user="one")


def test_a_load_is_drawn_by_its_seed_and_asks_for_the_gpus_of_each_team():
    found = rows({"one": 20.0, "two": 10.0}, days=60, seed=1)
    few = [rows({"one": 20.0, "two": 10.0}, days=1, seed=seed) for seed in (1, 1, 2)]
    assert few[0] == few[1] != few[2]
    for team, gpus in (("one", 20), ("two", 10)):
        area = sum(row.gpus * row.seconds for row in found if row.team == team)
        assert area / (60 * 86_400) == pytest.approx(gpus, rel=0.3)
    nights = sum(row.created // HOUR % 24 in {4, 5, 6} for row in found)
    afternoons = sum(row.created // HOUR % 24 in {15, 16, 17} for row in found)
    assert afternoons > 5 * nights


def test_run_times_are_learned_from_tasks_that_came_and_ended_before():
    early = [task(f"early-{n}", created=n, seconds=100 * (n + 1)) for n in range(5)]
    found = learned_run_times([*early, task("middle", created=250, seconds=9), task("late", created=9_000, seconds=9)])
    assert found["early-0"] == found["middle"] == 600  # fewer than three have ended
    assert found["late"] == 300  # of 9, 100, 200, 300, 400 and 500


def test_true_returns_are_what_owners_ask_for_within_their_shares():
    owner = OWNERS[0]
    tasks = [
        task("now", created=0, seconds=CELL_SECONDS, gpus=2, team=owner),
        task("large", created=2 * CELL_SECONDS, seconds=10, gpus=8, team=owner),
        task("other", created=0, seconds=10 * HOUR, gpus=8),
    ]
    world = World(Policy())
    world.tick(BEGIN)
    assert TrueReturns(tasks, {owner: 4.0, BORROWERS: 0.0}).ahead(world)[:5] == [2, 2, 4, 0, 0]


def test_returns_are_not_learned_before_two_days_were_seen():
    world, returns = World(Policy()), LearnedReturns(BEGIN, part=0.95)
    world.tick(BEGIN + 47 * HOUR)
    returns.note(world)
    assert returns.ahead(world) == []
    world.tick(BEGIN + 48 * HOUR)
    returns.note(world)
    assert set(returns.ahead(world)) == {0.0}


@pytest.mark.parametrize(
    ("name", "want_lost", "want_first"),
    [
        pytest.param("present", 8 * 1.0, 0, id="present policy: started at once, evicted after an hour"),
        pytest.param("hold-known", 0, 2.5, id="true returns: waits until the owner ended, in half hours"),
    ],
)
def test_a_task_that_would_be_evicted_is_held(name, want_lost, want_first):
    jobs = [
        Row(1, "borrows", 8, 0, 2 * HOUR, team=BORROWERS),
        Row(2, "owns", 2, HOUR, HOUR, team=OWNERS[0]),
    ]
    load = Load([NodeRow("node", 8)], jobs, 0, {}, is_shared=False)
    options = Namespace(checkpoint=0, patience=24)
    found = run(load, RULES[name], options, 0)
    assert found.lost == pytest.approx(want_lost)
    assert found.first_mean == pytest.approx(want_first, abs=0.05)
    assert found.owners_late == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(
    ("patience", "want_lost", "want_first"),
    [
        pytest.param(1, 8 * 0.5, 8.5, id="starts between two owners' tasks, and is evicted"),
        pytest.param(24, 0, 99, id="waits for the second of them, too"),
    ],
)
def test_a_task_is_held_no_longer_than_the_patience(patience, want_lost, want_first):
    jobs = [
        Row(1, "borrows", 8, 0, 2 * HOUR, team=BORROWERS),
        Row(2, "soon", 2, HOUR // 2, 8 * HOUR, team=OWNERS[0]),
        Row(3, "later", 2, 9 * HOUR, 90 * HOUR, team=OWNERS[0]),
    ]
    load = Load([NodeRow("node", 8)], jobs, 0, {}, is_shared=False)
    found = run(load, RULES["hold-known"], Namespace(checkpoint=0, patience=patience), 0)
    assert found.lost == pytest.approx(want_lost, abs=0.05)
    assert found.first_mean == pytest.approx(want_first, abs=0.01)


def test_a_task_that_ended_keeps_no_room():
    jobs = [
        Row(1, "short", 8, 0, 1, team=BORROWERS),
        Row(2, "next", 8, 60, HOUR, team=BORROWERS),
        Row(3, "owns", 1, 90 * HOUR, HOUR, team=OWNERS[0]),
    ]
    load = Load([NodeRow("node", 8)], jobs, 0, {}, is_shared=False)
    assert run(load, RULES["hold-known"], Namespace(checkpoint=0, patience=24), 0).first_mean == 0
