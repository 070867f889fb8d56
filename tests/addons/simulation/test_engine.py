"""Whole runs on a few GPUs: each outcome follows from the rules that the pages on the queue and on reclaim state."""

from dataclasses import replace

import pytest

from tests.addons.simulation.loads import QUEUES, T0, policy_of, simulated, task, team, waits, world_of
from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import Evictions, Refusals, Settings, TaskState
from webhook.core.model.amounts import ONE_GPU, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import Defaults, Enforcement, OnLimit, QueueRules, ReclaimRules
from webhook.core.model.reasons import Code
from webhook.core.world.waiting_pods import WaitingPod

A, B = team("a", 4), team("b", 4)


def test_pods_with_room_start_when_they_come_and_end_when_they_have_run():
    records, _ = simulated(world_of(policy_of(A, B)), task("one", "a", 2, seconds=60), task("two", "b", 1, at=10))
    assert waits(records) == {"one": 0, "two": 0}
    assert (records["one"].ended, records["two"].ended) == (T0 + 60, T0 + 110)
    assert {record.state for record in records.values()} == {TaskState.ENDED}


def test_a_pod_in_line_starts_when_the_limit_has_room_again():
    limited = policy_of(team("a", 4, limit=4))
    records, _ = simulated(world_of(limited), task("holder", "a", 4, seconds=50), task("next", "a", 4, at=5))
    assert waits(records) == {"holder": 0, "next": 45}


def test_a_pod_in_line_starts_when_a_node_has_room_again():
    records, _ = simulated(
        world_of(policy_of(team("a", 8))), task("all", "a", 8, seconds=50), task("one", "a", 1, at=1)
    )
    assert waits(records) == {"all": 0, "one": 49}


def test_a_refused_pod_is_created_again_once_there_is_room():
    rejects = policy_of(team("a", 4, limit=4), defaults=Defaults(on_limit=OnLimit.REJECT))
    tasks = task("holder", "a", 4, seconds=50), task("next", "a", 2, at=5), task("last", "a", 2, at=6)
    records, _ = simulated(world_of(rejects), *tasks)
    assert waits(records) == {"holder": 0, "next": 45, "last": 44}
    assert records["next"].refusals == 1


def test_pods_that_meet_a_full_line_are_created_again_until_it_takes_them():
    short = policy_of(team("a", 8, limit=8), queue=QueueRules(depth=1))
    tasks = [task(f"t{n}", "a", 8, at=n, seconds=100) for n in range(5)]
    records, _ = simulated(world_of(short), *tasks)
    assert waits(records) == {f"t{n}": 99 * n for n in range(5)}
    assert [records[f"t{n}"].refusals for n in range(5)] == [0, 0, 1, 1, 1]


def test_a_pod_that_met_a_full_line_is_judged_once_it_is_in_line():
    # `small` gets into the line when `large` leaves it, and starts beside it at once
    short = policy_of(team("a", 8, limit=8), queue=QueueRules(depth=1))
    tasks = task("holder", "a", 8, seconds=100), task("large", "a", 4, at=1), task("small", "a", 4, at=2)
    records, _ = simulated(world_of(short), *tasks)
    assert waits(records) == {"holder": 0, "large": 99, "small": 98}


def test_pods_that_wait_in_the_line_of_the_world_start_and_stay():
    world = world_of(policy_of(team("a", 8, limit=8)))
    world.set_waiting(WaitingPod(task("before", "a", 4).pod._replace(uid=Uid("u")), TeamName("a"), created=T0 - 9))
    records, simulation = simulated(world, task("small", "a", 4, at=5, seconds=10), task("large", "a", 8, at=6))
    assert waits(records) == {"small": 0, "large": None}
    assert (simulation.world.usage(TeamName("a")).total, simulation.now) == (4 * ONE_GPU, T0 + 15)


@pytest.mark.parametrize(
    ("gpus", "settings"),
    [
        pytest.param(4, Settings(refusals=Refusals.LOSE), id="no controller creates it again"),
        pytest.param(5, Settings(), id="it could never start"),
    ],
)
def test_a_refused_pod_is_lost(gpus, settings):
    rejects = policy_of(team("a", 4, limit=4), defaults=Defaults(on_limit=OnLimit.REJECT))
    tasks = task("holder", "a", 4), task("next", "a", gpus, at=5)
    records, _ = simulated(world_of(rejects), *tasks, settings=settings)
    assert (records["next"].state, records["next"].started) == (TaskState.REFUSED, None)
    assert {reason.code for reason in records["next"].refused} == {Code.TEAM_LIMIT_EXCEEDED}


def test_a_guaranteed_pod_gets_its_room_from_a_borrower_which_starts_again_later():
    borrower, owner = task("borrower", "a", 8, seconds=100), task("owner", "b", 4, at=30, seconds=50)
    records, simulation = simulated(world_of(policy_of(A, B)), borrower, owner)
    assert records["borrower"].tier is Tier.PREEMPTIBLE
    assert (records["owner"].tier, records["owner"].wait_seconds) == (Tier.GUARANTEED, 0)
    assert [(each.at - T0, each.record.task.name) for each in simulation.evictions] == [(30, "borrower")]
    assert (records["borrower"].evictions, records["borrower"].lost_seconds) == (1, 30)
    assert records["borrower"].ended == T0 + 80 + 100  # again from the beginning, once the owner ended


def test_a_victim_loses_only_the_work_since_its_last_checkpoint():
    tasks = task("borrower", "a", 8, seconds=100), task("owner", "b", 4, at=35, seconds=50)
    records, _ = simulated(world_of(policy_of(A, B)), *tasks, settings=Settings(checkpoint_seconds=10))
    assert (records["borrower"].lost_seconds, records["borrower"].ended) == (5, T0 + 85 + 70)


def test_a_victim_without_a_controller_is_lost():
    tasks = task("borrower", "a", 8), task("owner", "b", 4, at=30)
    records, _ = simulated(world_of(policy_of(A, B)), *tasks, settings=Settings(evictions=Evictions.LOSE))
    assert (records["borrower"].state, records["borrower"].ended) == (TaskState.EVICTED, None)


def test_notice_and_minimum_runtime_delay_an_eviction():
    rules = ReclaimRules(notice_seconds=20, minimum_runtime_seconds=60)
    tasks = task("borrower", "a", 8, seconds=1000), task("owner", "b", 4, at=30)
    records, simulation = simulated(world_of(policy_of(A, B, reclaim=rules)), *tasks)
    [eviction] = simulation.evictions
    # the borrower runs at least 60 s, and the notice ends before it goes
    assert eviction.at - T0 == records["owner"].wait_seconds + 30
    assert eviction.at - T0 in {60, 80}


def test_a_borrower_becomes_guaranteed_once_the_share_has_room():
    held = task("first", "a", 4, seconds=50)
    records, simulation = simulated(
        world_of(policy_of(A, B)), held, task("more", "a", 4, at=1, seconds=500), task("owner", "b", 4, at=60)
    )
    assert records["more"].tier is Tier.PREEMPTIBLE
    assert not simulation.evictions  # the owner got the room of the first, since `more` is guaranteed by then
    assert records["owner"].wait_seconds == 0


def test_a_gang_starts_whole_and_runs_together():
    tasks = [task(f"member-{n}", "a", 4, gang="g", size=2) for n in range(2)]
    blocker = task("blocker", "b", 4, at=-10, seconds=50)
    records, _ = simulated(world_of(policy_of(team("a", 8), B)), blocker, *tasks)
    assert waits(records) == {"blocker": 0, "member-0": 40, "member-1": 40}
    assert records["member-0"].ended == records["member-1"].ended == T0 + 140


def test_pods_without_gpus_take_cpu_where_it_is_free():
    tasks = [task(f"cpu-{n}", "a", 0, cpu=40_000, seconds=30) for n in range(2)]
    records, _ = simulated(world_of(policy_of(A)), *tasks)
    assert sorted(record.wait_seconds for record in records.values()) == [0, 30]
    records, _ = simulated(world_of(policy_of(A), nodes=2), *tasks)
    assert {record.node for record in records.values()} == {"node-0", "node-1"}


def test_pods_of_no_limit_wait_in_kube_scheduler_if_policy_says_so():
    waiting = policy_of(team("a", 8), defaults=Defaults())
    records, _ = simulated(world_of(waiting), task("all", "a", 8, seconds=50), task("one", "a", 1, at=10))
    assert waits(records) == {"all": 0, "one": 40}


def test_the_same_input_gives_the_same_result():
    def run():
        tasks = [task(f"t{n}", "ab"[n % 2], 1 + n % 4, at=n * 7, seconds=90 + n) for n in range(80)]
        records, simulation = simulated(world_of(policy_of(A, B)), *tasks)
        return [(r.started, r.ended, r.node, r.evictions) for r in records.values()], len(simulation.evictions)

    first = run()
    assert first == run()
    assert all(started is not None for started, *_ in first[0])


def test_no_node_and_no_limit_is_ever_exceeded():
    policy = policy_of(team("a", 4, limit=6), team("b", 4, limit=8), defaults=QUEUES)
    world = world_of(policy, nodes=2, gpus=4)
    tasks = [task(f"t{n}", "ab"[n % 2], 1 + n % 4, at=n * 3, seconds=40 + 5 * (n % 7)) for n in range(120)]
    simulation = Simulation(world, tasks)
    seen = []

    def check(running):
        for name, limit in (("a", 6), ("b", 8)):
            assert running.world.usage(name).total <= limit * ONE_GPU
        bound = [pod_of for pod_of in running.cluster.pods.values() if pod_of.is_bound]
        for node in ("node-0", "node-1"):
            assert sum(each.pod.demand.gpus for each in bound if each.resident.node == node) <= 4 * ONE_GPU
        seen.append(running.now)

    simulation.on_time = check
    simulation.run()
    assert len(seen) > 100
    assert all(record.state is TaskState.ENDED for record in simulation.records)


def test_pods_that_are_there_hold_room_until_they_end():
    policy = policy_of(team("a", 8))
    before, _ = simulated(world_of(policy), task("there", "a", 8, seconds=10**6))
    simulation = Simulation(world_of(policy), [task("there", "a", 8, seconds=10**6)])
    simulation.run(until=T0 + 10)
    world = simulation.world
    [there] = list(world.pods())
    later = Simulation(world, [replace_at(task("next", "a", 1), 20)])
    later.end_pod(there.uid, at=T0 + 70)
    later.run()
    assert before["there"].wait_seconds == 0
    assert later.records[0].wait_seconds == 50


def replace_at(made, at):
    return made._replace(created=T0 + at)


def test_a_policy_that_is_not_enforced_releases_everything():
    shadow = replace(policy_of(team("a", 1, limit=1)), enforce=Enforcement.SHADOW)
    records, _ = simulated(world_of(shadow), task("one", "a", 1), task("two", "a", 4, at=1))
    assert waits(records) == {"one": 0, "two": 0}
