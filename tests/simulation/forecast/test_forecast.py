"""Forecasts of whole lines: ranges, reasons, determinism, bounds, and the world that is left as it was."""

import time
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from tests.simulation.loads import GPU, T0, policy_of, task, team, world_of
from webhook.core.explain.line_places import Run, StartRange, UnknownStart
from webhook.core.model.pod import NO_RUN_TIME, Pod, RunTime
from webhook.core.world.waiting_pods import WaitingPod
from webhook.simulation.engine import Simulation
from webhook.simulation.forecast import forecast as module
from webhook.simulation.forecast.forecast import Forecast

HOUR = 3600
NOW = T0 + 10 * HOUR
LENGTHS = [HOUR + 60 * number for number in range(40)]


def past(lengths=LENGTHS):
    return [Run(f"old-{n}", "a", NOW - 7200 - length, NOW - 7200, 0) for n, length in enumerate(lengths)]


def present(*tasks, nodes=1, gpus=8, policy=None):
    """The world after these tasks came, all of which run or wait."""
    world = world_of(policy or policy_of(team("a", 8), team("b", 8)), nodes=nodes, gpus=gpus)
    simulation = Simulation(world, [each._replace(seconds=10**7) for each in tasks])
    simulation.run(until=NOW)
    world.tick(NOW)
    return world


def forecast(world, runs=None, **more):
    return Forecast(world, past() if runs is None else runs, now=NOW, clock=more.pop("clock", lambda: 0.0))


def starts(world, runs=None):
    found = forecast(world, runs)
    return {waiting.pod.name: found(waiting.uid) for waiting in world.waiting.all()}


def test_a_pod_waits_for_the_rest_of_the_run_before_it():
    world = present(task("r", "a", 8, at=10 * HOUR - 1800), task("w", "a", 8, at=10 * HOUR - 60))
    found = starts(world)["w"]
    assert isinstance(found, StartRange)
    assert 0 < found.earliest <= HOUR <= found.latest


def test_those_further_back_start_later():
    world = present(*(task(f"w{n}", "a", 8, at=9 * HOUR + n) for n in range(5)))
    found = starts(world)
    latest = [found[f"w{n}"].latest for n in range(1, 5)]
    assert latest == sorted(latest)
    assert latest[0] < latest[-1]


def test_without_ended_pods_it_is_unknown_and_says_how_many_are_needed():
    world = present(task("r", "a", 8), task("w", "a", 8, at=10))
    want = "and 5 are needed to tell how long pods run; annotation fairgate.dev/run-time tells it, too"
    assert starts(world, [])["w"].reason == f"no pod that ended can be read, {want}"
    assert starts(world, past(LENGTHS[:2]))["w"].reason.startswith("only 2 pods that ended can be read, and 5 are")


def test_what_no_node_can_hold_does_not_start():
    world = present(task("r", "a", 8), task("w", "a", 8, at=10))
    world.remove_node("node-0")
    world.set_node(replace(world_of(world.policy, gpus=4).fleet.get("node-0")))
    assert starts(world)["w"].reason == "in 9 of 9 simulated courses it does not start within 365 days"


def test_a_gang_that_is_not_complete_is_unknown():
    members = [task(f"m{n}", "a", 4, at=10, gang="g", size=3) for n in range(2)]
    assert starts(present(task("r", "a", 8), *members))["m0"].reason == "its gang is not complete"


def test_a_complete_gang_has_a_range():
    members = [task(f"m{n}", "a", 4, at=10, gang="g", size=2) for n in range(2)]
    found = starts(present(task("r", "a", 8), *members))
    assert isinstance(found["m0"], StartRange)
    assert found["m0"] == found["m1"]


@pytest.mark.parametrize("moments", [0, 200], ids=["the coarse line", "the engine"])
def test_the_same_world_gives_the_same_answer_and_is_left_as_it_was(monkeypatch, moments):
    monkeypatch.setattr(module, "MOST_MOMENTS", moments)
    world = present(*(task(f"w{n}", "ab"[n % 2], 1 + n % 5, at=n) for n in range(30)))
    before = sorted(world.pods()), sorted(pod.uid for pod in world.waiting.all()), world.fleet.free("node-0", GPU)
    listener = world.waiting.on_change
    first = starts(world)
    assert starts(world) == first
    assert world.waiting.on_change is listener
    after = sorted(world.pods()), sorted(pod.uid for pod in world.waiting.all()), world.fleet.free("node-0", GPU)
    assert after == before
    assert any(isinstance(each, StartRange) for each in first.values())


def test_the_coarse_line_and_the_engine_agree_on_a_line_that_is_served_in_order(monkeypatch):
    world = present(*(task(f"w{n}", "a", 8, at=9 * HOUR + n) for n in range(8)))
    engine = starts(world)
    monkeypatch.setattr(module, "MOST_MOMENTS", 0)
    assert starts(world) == engine


def crowd(world, count):
    dice = Random(1)
    pattern = next(iter(world.waiting.all()))
    for number in range(count):
        pod: Pod = pattern.pod._replace(uid=f"c{number}", name=f"c{number}")
        world.set_waiting(WaitingPod(pod, "ab"[number % 2], user=f"u{dice.randrange(99)}", created=T0 + 100 + number))
    return world


@pytest.mark.slow
def test_a_long_line_is_bounded_in_work_and_its_end_follows_at_the_pace_of_its_beginning():
    world = crowd(present(task("r", "a", 8), task("w", "a", 2, at=10)), 3_000)
    begun = time.process_time()
    found = starts(world)
    assert time.process_time() - begun < 25, "some seconds, also on a slow machine with others beside it"
    ranges = {name: each for name, each in found.items() if isinstance(each, StartRange)}
    assert len(ranges) > 1_000
    assert ranges["w"].latest < max(each.latest for each in ranges.values())


def test_where_time_runs_out_there_are_fewer_samples_or_a_reason():
    world = present(task("r", "a", 8), task("w", "a", 8, at=10))
    [waiting] = world.waiting.all()
    assert isinstance(forecast(world, clock=clock_of(0.01))(waiting.uid), StartRange)
    found = forecast(world, clock=clock_of(100))(waiting.uid)
    assert found == UnknownStart("the line is too long to be simulated in time")


def clock_of(step):
    """A clock that goes on by so many seconds each time that it is read."""
    ticks = count()
    return lambda: float(next(ticks) * step)


def saying(*said, world):
    """The world, in which its waiting pods say of their runs what these say."""
    for waiting, each in zip(sorted(world.waiting.all(), key=lambda pod: pod.created), said, strict=True):
        world.set_waiting(replace(waiting, pod=waiting.pod._replace(run_time=each)))
    return world


def runs_on(world, run_time):
    """Runs of the pods on nodes, of which their users say this."""
    return [Run(pod.uid, "a", NOW - 600, 0, 8, None, run_time) for pod in world.pods()]


def test_in_a_new_cluster_stated_run_times_make_ranges_along_the_line():
    world = present(*(task(f"w{n}", "a", 8, at=9 * HOUR + n) for n in range(4)))
    saying(*[RunTime(HOUR)] * 3, world=world)
    found = starts(world, runs_on(world, RunTime(HOUR)))
    latest = [found[f"w{n}"].latest for n in (1, 2, 3)]
    assert all(isinstance(found[f"w{n}"], StartRange) for n in (1, 2, 3))
    assert latest == sorted(latest)
    assert latest[0] < 6 * HOUR


def test_what_nothing_is_said_of_keeps_those_behind_it_unknown_and_those_before_known():
    world = present(*(task(f"w{n}", "a", 8, at=9 * HOUR + n) for n in range(4)))
    saying(RunTime(HOUR), NO_RUN_TIME, RunTime(HOUR), world=world)
    found = starts(world, runs_on(world, RunTime(HOUR)))
    assert isinstance(found["w1"], StartRange)
    assert isinstance(found["w2"], StartRange)
    assert found["w3"].reason.startswith("no pod that ended can be read")


def test_a_start_that_needs_an_eviction_is_not_promised_where_no_evictor_leads():
    policy = policy_of(team("a", 8), team("b", 0, limit=8))
    world = present(task("borrower", "b", 8), policy=policy)
    waiting = WaitingPod(task("w", "a", 8).pod._replace(uid="w"), "a", created=NOW - 60)
    world.set_waiting(waiting)
    runs = [*past(), *(Run(pod.uid, "b", NOW - 600, 0, 8) for pod in world.pods())]
    with_evictor = Forecast(world, runs, now=NOW, clock=lambda: 0.0)(waiting.uid)
    without = Forecast(world, runs, now=NOW, clock=lambda: 0.0, no_evictor="no evictor leads")(waiting.uid)
    assert with_evictor.latest < 10 * 60, "reclaim makes room after its notice"
    assert without.latest > 10 * 60, "it waits for the borrower to end"
    never = Forecast(world, [], now=NOW, clock=lambda: 0.0, no_evictor="no evictor leads")(waiting.uid)
    assert isinstance(never, UnknownStart)
