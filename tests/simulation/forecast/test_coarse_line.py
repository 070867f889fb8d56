"""The coarse line: order between teams, limits, room on nodes, pods that go ahead, and its bounds."""

from tests.simulation.loads import GPU, T0, policy_of, team, world_of
from webhook.core.model.amounts import CPU
from webhook.core.model.demand import demand_of
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.simulation.forecast.coarse_line import CoarseLine, CoarsePod, CoarseRun

EVERYWHERE = -1
POLICY = policy_of(team("a", 4, 8), team("b", 4, 8))


def asks(gpus, cpu=1000):
    return demand_of({GPU: gpus, CPU: cpu}, BUILT_IN_RESOURCES)


def pod(uid, gpus, *, team="a", seconds=100, cpu=1000, nodes=EVERYWHERE):
    return CoarsePod(uid, team, asks(gpus, cpu), nodes, seconds)


def run(uid, gpus, *, ends, team="a", node="node-0"):
    return CoarseRun(uid, T0 + ends, team, asks(gpus), node)


def line(*pods, running=(), nodes=1, policy=POLICY):
    fleet = world_of(policy, nodes=nodes).fleet
    for each in running:
        fleet.take(each.node, each.demand, holder=each.uid)
    return CoarseLine(policy, fleet, running=running, line=pods), fleet


def starts(*pods, most=100, until=10**6, **more):
    found, _ = line(*pods, **more)
    return {uid: at - T0 for uid, at in found.starts(now=T0, until=T0 + until, most=most).items()}


def test_pods_start_when_room_comes_back_each_after_those_before():
    found = starts(pod("x", 8, seconds=50), pod("y", 8), running=[run("r", 8, ends=10, team="b")])
    assert found == {"x": 10, "y": 60}


def test_a_limit_holds_its_team_back_and_no_other():
    found = starts(pod("x", 4), pod("y", 2, team="b"), nodes=2, running=[run("r", 8, ends=70, team="a")])
    assert found == {"x": 70, "y": 0}


def test_the_team_that_has_less_goes_first():
    running = [run("r", 2, ends=900, team="a"), run("s", 4, ends=10, team="b")]
    assert starts(pod("x", 4, team="a"), pod("y", 4, team="b"), running=[*running, run("t", 2, ends=900)])["y"] == 10


def test_cpu_counts_as_well():
    assert starts(pod("x", 1, cpu=64_000), running=[run("r", 1, ends=30)]) == {"x": 30}


def test_a_smaller_pod_goes_ahead_but_not_on_the_node_that_is_kept():
    running = [run("r", 8, ends=50, node="node-0"), run("s", 6, ends=500, team="b", node="node-1")]
    policy = policy_of(team("a", 4), team("b", 4))
    found = starts(pod("large", 8), pod("small", 2, seconds=5), running=running, nodes=2, policy=policy)
    assert found["small"] <= 50
    assert found["large"] <= 500


def test_a_pod_stays_on_the_nodes_that_it_may_use():
    assert starts(pod("x", 1, nodes=1), running=[run("r", 8, ends=20)], nodes=2) == {"x": 20}


def test_what_never_fits_never_starts_and_holds_no_smaller_pod_up_for_good():
    found = starts(pod("never", 9), pod("x", 2), running=[run("r", 8, ends=20, team="b")])
    assert found == {"x": 20}


def test_ends_are_bounded_and_a_cut_is_said():
    found, _ = line(*(pod(f"p{n}", 8) for n in range(9)))
    assert len(found.starts(now=T0, until=T0 + 10**6, most=3)) == 3
    assert found.is_cut
    whole, _ = line(pod("x", 1))
    whole.starts(now=T0, until=T0 + 10**6, most=3)
    assert not whole.is_cut


def test_undo_sets_the_fleet_back():
    found, fleet = line(pod("x", 8, seconds=9), pod("y", 8), running=[run("r", 5, ends=10, team="b")])
    before = fleet.free("node-0", GPU), fleet.free("node-0", CPU)
    found.starts(now=T0, until=T0 + 10**6, most=100)
    assert (fleet.free("node-0", GPU), fleet.free("node-0", CPU)) != before
    found.undo()
    assert (fleet.free("node-0", GPU), fleet.free("node-0", CPU)) == before
