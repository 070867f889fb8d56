"""The mix of sizes expected of future pods."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, policy, resident, world
from webhook.core.model.amounts import CPU, ResourceName
from webhook.core.model.demand import DEFAULT_PRIOR, PerDevice, Shape, demand_of
from webhook.core.model.policy import PlacementRules
from webhook.core.placement.fragmentation import DemandMix, shape_of

MEM = ResourceName("aliyun.com/gpu-mem")


def shape(made):
    return shape_of(made.requests, GPU)


def learned(*several) -> DemandMix:
    demand_mix = DemandMix()
    for each in several:
        demand_mix.note(each)
    return demand_mix


def test_the_prior_is_expected_before_any_pod():
    assert set(DemandMix().expected(GPU)) == {each for each, _ in DEFAULT_PRIOR}


def test_arrivals_outweigh_the_prior_and_change_the_version():
    demand_mix = DemandMix()
    demand_mix.expected(GPU)
    for _ in range(640):
        demand_mix.note(demand(3))
    assert demand_mix.version > 0
    expected = demand_mix.expected(GPU)
    assert expected[shape(demand(3))] * 10 >= 9 * sum(expected.values())


def test_more_pods_of_the_same_size_change_nothing():
    demand_mix = learned(*[demand(3)] * 4096)
    demand_mix.expected(GPU)
    before = demand_mix.version
    for _ in range(1000):
        demand_mix.note(demand(3))
    assert demand_mix.version == before


def test_sizes_that_no_longer_come_lose_weight():
    demand_mix = learned(*[demand(8)] * 8192, *[demand(1)] * 24_576)
    expected = demand_mix.expected(GPU)
    assert expected[shape(demand(8))] * 4 < expected[shape(demand(1))]


def test_the_number_of_sizes_is_bounded():
    demand_mix = learned(*(demand(1, cpu=cpu) for cpu in range(1, 2000)))
    assert len(demand_mix.expected(GPU)) <= 512 + len(DEFAULT_PRIOR)


def test_resources_are_learned_separately():
    ask = PerDevice(MEM, 8)
    demand_mix = learned(demand(2), demand_of({CPU: 100, MEM: 8}, {MEM: 1}, per_device=ask))
    assert Shape(1, 8, 0, 100) in demand_mix.expected(MEM)
    assert Shape(1, 8, 0, 100) not in demand_mix.expected(GPU)


@given(st.lists(st.sampled_from([demand(1), demand(2, cpu=100), demand(8)]), max_size=300))
def test_the_same_arrivals_give_the_same_mix(several):
    one, other = learned(*several), learned(*several)
    assert (one.version, one.expected(GPU)) == (other.version, other.expected(GPU))


def test_a_world_learns_from_the_pods_that_run_and_from_each_only_once():
    place = world(residents=[resident(3, uid="a", node="n0"), resident(3, uid="a", node="n0", is_terminating=True)])
    assert place.fleet.gpus.demand_mix.expected(GPU)[shape(demand(3))] == 16


def test_a_world_expects_what_policy_says():
    rules = PlacementRules(demand_mix=((Shape(5), 1),))
    assert set(world(policy(placement=rules)).fleet.gpus.demand_mix.expected(GPU)) == {Shape(5)}


def test_a_pod_that_shares_the_devices_of_another_is_no_size():
    alone = demand(2)
    joining = replace(alone, requests=tuple(each for each in alone.requests if each[0] != GPU), own=demand(0))
    assert learned(*[joining] * 640).expected(GPU) == learned().expected(GPU)


def part_of(demand_mix, made):
    expected = demand_mix.expected(GPU)
    return expected.get(shape(made), 0) / sum(expected.values())


def test_a_team_that_creates_any_number_of_pods_fills_no_more_than_its_part():
    """They place the pods of all teams; a user's pods count in the team the same way."""
    demand_mix = DemandMix()
    for number in range(2_000):
        demand_mix.note(demand(8), team=f"team-{number % 4}", user="ada")
    before = part_of(demand_mix, demand(8))
    for number in range(9_000):
        demand_mix.note(demand(1), team="flood", user=f"robot-{number}")
    assert before > 0.9
    assert part_of(demand_mix, demand(8)) > 0.7
    assert 0.1 < part_of(demand_mix, demand(1)) < 0.25
    one_user = DemandMix()
    for number in range(2_000):
        one_user.note(demand(8), team="team-a", user=f"user-{number % 4}")
    for _ in range(9_000):
        one_user.note(demand(1), team="team-a", user="flood")
    assert part_of(one_user, demand(8)) > 0.7


def test_a_world_counts_pods_by_team_and_those_of_no_team_by_namespace():
    place = world()
    for number in range(1_000):
        place.set_pod(resident(1, uid=f"f{number}", namespace="flood"))
    for number in range(400):
        place.set_pod(resident(8, uid=f"h{number}", namespace=f"team-{'ab'[number % 2]}"))
    assert part_of(place.fleet.gpus.demand_mix, demand(8)) > 0.5


def test_sizes_of_one_team_do_not_displace_those_of_others():
    demand_mix = DemandMix()
    for _ in range(100):
        demand_mix.note(demand(8), team="team-a")
    for cpu in range(1, 2_000):
        demand_mix.note(demand(1, cpu=cpu), team="flood", user=f"u{cpu}")
    expected = demand_mix.expected(GPU)
    assert len(expected) <= 512 + len(DEFAULT_PRIOR)
    assert expected[shape(demand(8))] >= 100 * 16
