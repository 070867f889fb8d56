"""Percentiles, sums by team and size, confidence, and what is sampled on the way."""

import pytest

from tests.addons.simulation.loads import QUEUES, T0, policy_of, task, team, world_of
from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.summary import Interval, Recorder, interval, summary_of


def summary(world, *tasks, points=4):
    simulation = Simulation(world, tasks)
    recorder = Recorder(simulation, points=points)
    simulation.on_time = recorder.note
    simulation.run()
    return summary_of(simulation, recorder)


TEAMS = policy_of(team("a", 8, limit=8), team("b", 0), defaults=QUEUES)


def test_waits_by_team_and_by_size():
    found = summary(
        world_of(TEAMS, nodes=2),
        task("one", "a", 8, seconds=100),
        task("two", "a", 8, at=10, seconds=100),
        task("other", "b", 1, at=20),
    )
    assert [(each.group, each.jobs, each.wait_p50, each.wait_p99) for each in found.teams] == [
        ("a", 2, 0, 90),
        ("b", 1, 0, 0),
    ]
    assert [(each.group, each.jobs) for each in found.sizes] == [("1", 1), ("5-8", 2)]
    assert (found.total.jobs, found.total.never_started) == (3, 0)
    assert found.total.gpu_hours == pytest.approx((800 + 800 + 100) / 3600)


def test_gpus_in_use_between_the_first_and_the_last_arrival():
    found = summary(world_of(TEAMS), task("half", "a", 4, seconds=50), task("last", "a", 1, at=100))
    assert found.allocated == pytest.approx(0.25)  # 4 of 8 GPUs for half of the time
    assert [sample.at_seconds for sample in found.samples] == [0, 25, 50, 75, 100]
    assert [sample.allocated for sample in found.samples] == [4, 4, 0, 0, 1]
    assert [sample.largest_pod for sample in found.samples] == [4, 4, 8, 8, 7]


def test_borrowed_and_waiting_gpus_are_sampled():
    found = summary(world_of(TEAMS), task("b", "b", 8), task("a", "b", 2, at=10), task("end", "b", 1, at=20), points=2)
    assert [(each.guaranteed_gpus, each.preemptible_gpus, each.waiting_gpus) for each in found.samples] == [
        (0, 8, 0),
        (0, 8, 2),
        (0, 8, 3),
    ]


def test_a_gang_is_one_job_that_waits_for_its_last_member():
    members = [task(f"m{n}", "a", 4, at=n * 5, gang="g", size=2) for n in range(2)]
    found = summary(world_of(TEAMS), *members)
    assert (found.total.jobs, found.total.wait_p50) == (1, 5)
    assert [each.group for each in found.sizes] == ["5-8"]


def test_jobs_that_never_start_have_no_percentile():
    found = summary(world_of(TEAMS), task("large", "a", 9), task("small", "a", 1, at=1))
    assert (found.total.never_started, found.total.refused, found.total.wait_p50, found.total.wait_p90) == (
        1,
        1,
        0,
        None,
    )


def test_evictions_and_the_work_that_they_lose():
    found = summary(world_of(TEAMS), task("borrower", "b", 8, seconds=3600), task("owner", "a", 8, at=1800))
    assert (found.total.evictions, found.total.lost_gpu_hours) == (1, 4)


def test_nodes_held_in_part_and_gangs_on_more_nodes_than_they_need():
    """A gang of two pods of 2 GPUs is on two nodes, since 6 GPUs of each are taken."""
    filled = [task(f"full{n}", "b", 6, seconds=100) for n in range(2)]
    members = [task(f"m{n}", "a", 2, at=10, gang="g", size=2, seconds=90) for n in range(2)]
    found = summary(world_of(TEAMS, nodes=2), *filled, *members, task("end", "a", 1, at=200), points=4)
    assert [each.partly_held for each in found.samples] == [1.0, 0.0, 0.0, 0.0, 0.5]
    assert [each.beyond_fewest for each in found.samples] == [0.0, 0.5, 0.0, 0.0, 0.0]
    assert (found.partly_held, found.beyond_fewest) == (0.3, 0.5)


def test_confidence_over_rounds():
    assert interval([5.0]) == Interval(5.0, None)
    assert interval([1.0, None]) is None
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.margin) == (2.0, pytest.approx(4.30 / 3**0.5, abs=1e-4))
    assert interval(range(40)).margin == pytest.approx(2.10 * 11.69 / 40**0.5, rel=1e-3)


def test_nothing_comes():
    found = summary(world_of(TEAMS))
    assert (found.total.jobs, found.total.wait_p50, found.allocated, found.seconds) == (0, None, 0.0, 0)
    assert T0 > 0
