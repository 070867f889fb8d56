"""Moves that make room in a simulation: when, which pods, and what they cost."""

from dataclasses import replace

import pytest

from tests.addons.simulation.loads import QUEUES, policy_of, simulated, task, team, waits, world_of
from webhook.addons.moves.simulated import LOOK_SECONDS, PLAN_SECONDS
from webhook.addons.simulation.task import Evictions, MovedTiers, Settings, TaskState
from webhook.core.model.policy import Defaults, OnLimit, OnNoRoom
from webhook.core.model.policy_addons import DefragmentRules

BORROWS = "preemptible"
HOUR = 3600


def run(*, moved=MovedTiers.PREEMPTIBLE, tier=BORROWS, defaults=QUEUES, **more):
    """Two nodes of four GPUs with one task of one GPU left on each, and a task of four GPUs that comes after 100 s."""
    world = world_of(policy_of(team("a", 16), team("b", 0), defaults=defaults), nodes=2, gpus=4)
    tasks = [
        task("wide-1", "a", 3, seconds=60),
        task("small-1", "a", 1, at=1, seconds=10 * HOUR, tier=tier),
        task("wide-2", "a", 3, at=2, seconds=60),
        task("small-2", "a", 1, at=3, seconds=10 * HOUR, tier=tier),
        task("large", "b", 4, at=100, seconds=HOUR),
    ]
    return simulated(world, *tasks, settings=Settings(moved=moved, **more))


def test_without_moves_a_large_task_waits_until_a_small_one_ends():
    records, simulation = run(moved=MovedTiers.NONE)
    assert (waits(records)["large"], simulation.moves) == (10 * HOUR - 99, 0)


@pytest.mark.parametrize("no_room", list(OnNoRoom))
def test_one_small_task_makes_room_for_it_once_its_wait_is_worth_what_is_lost(no_room):
    records, simulation = run(defaults=Defaults(on_limit=OnLimit.QUEUE, on_no_room=no_room))
    assert simulation.moves == 1
    assert waits(records)["large"] <= LOOK_SECONDS + 2
    moved = next(record for name, record in records.items() if name.startswith("small") and record.evictions)
    assert moved.lost_seconds <= 4 * waits(records)["large"]
    assert moved.state is TaskState.ENDED


def test_checkpoints_are_kept():
    records, _ = run(checkpoint_seconds=60)
    moved = next(record for name, record in records.items() if name.startswith("small") and record.evictions)
    assert moved.lost_seconds < 60


@pytest.mark.parametrize(("moved", "want"), [(MovedTiers.PREEMPTIBLE, 0), (MovedTiers.ALL, 1)])
def test_guaranteed_tasks_move_only_if_that_is_assumed(moved, want):
    assert run(moved=moved, tier="guaranteed")[1].moves == want


def test_tasks_that_do_not_come_again_are_not_moved():
    assert run(evictions=Evictions.LOSE)[1].moves == 0


def bounded(moved=MovedTiers.POLICY, **more):
    """The same two nodes, under a policy that moves pods on demand."""
    policy = policy_of(team("a", 16), team("b", 0), defaults=QUEUES)
    rules = DefragmentRules(**{"on_demand": True, "minimum_runtime_seconds": 0} | more)
    world = world_of(replace(policy, defragment=rules), nodes=2, gpus=4)
    tasks = [
        task("wide-1", "a", 3, seconds=60),
        task("small-1", "a", 1, at=1, seconds=10 * HOUR, tier=BORROWS),
        task("wide-2", "a", 3, at=2, seconds=60),
        task("small-2", "a", 1, at=3, seconds=10 * HOUR, tier=BORROWS),
        task("large", "b", 4, at=100, seconds=HOUR),
    ]
    return simulated(world, *tasks, settings=Settings(moved=moved))


def test_a_policy_that_moves_pods_moves_them():
    records, simulation = bounded()
    assert simulation.moves == 1
    assert waits(records)["large"] <= 3 * PLAN_SECONDS


def test_moves_can_be_left_out_of_a_simulation():
    assert bounded(moved=MovedTiers.NONE)[1].moves == 0


@pytest.mark.parametrize(
    "rule", [{"lost_seconds_per_gpu": 1}, {"minimum_runtime_seconds": 11 * HOUR}], ids=["lost work", "runtime"]
)
def test_the_bounds_of_the_policy_hold(rule):
    records, simulation = bounded(**rule)
    assert (simulation.moves, waits(records)["large"]) == (0, 10 * HOUR - 99)
