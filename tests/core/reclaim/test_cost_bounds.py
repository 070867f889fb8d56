"""Lower bounds of costs: never more than what the cheapest victims cost."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.scenes import NOW, cheapest, scene, scenes, victim, waiting
from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.reclaim.costs import SUMS, CostBounds, fewest, least_surplus
from webhook.core.reclaim.victims import NEVER

sizes = st.dictionaries(st.integers(1, 9), st.integers(1, 3), max_size=4)


def choices(counts):
    """All choices of pods of these sizes."""
    pods = [size for size, count in counts.items() for _ in range(count)]
    return chain.from_iterable(combinations(pods, count) for count in range(len(pods) + 1))


@given(sizes, st.integers(0, 20))
def test_the_least_surplus_and_the_fewest_pods_are_those_of_the_best_choice(counts, gpus):
    enough = [chosen for chosen in choices(counts) if sum(chosen) >= gpus]
    if not enough:
        assert least_surplus(counts, gpus) == 0
        assert fewest(counts, gpus) == sum(counts.values())
        return
    assert least_surplus(counts, gpus) == min(sum(chosen) - gpus for chosen in enough)
    assert fewest(counts, gpus) == min(map(len, enough))


def test_of_too_many_different_sums_none_is_looked_for():
    powers = {3 << place: 1 for place in range(20)}
    assert least_surplus(dict(list(powers.items())[:4]), 4) == 2
    assert len(powers) > SUMS.bit_length()
    assert least_surplus(powers, (3 << 20) - 4) == 0


@given(scenes(nodes=2, saved=(3, 5, NEVER)), st.integers(1, 6))
def test_no_choice_of_victims_costs_less_than_its_bound(scene_, count):
    asked = waiting(count=count)
    bounds = CostBounds(scene_, asked.team)
    least = []
    for each in scene_.fleet.nodes():
        missing = max(0, count * ONE_GPU - scene_.fleet.free(each.name, "nvidia.com/gpu") * ONE_GPU)
        victims = scene_.victim_index.on(each.name)
        if victims is not None:
            least.append(bounds.of_one(victims, missing).ranked(scene_.order))
        elif not missing:
            least.append(tuple([0] * (len(scene_.order) + 1)))
    want = cheapest(scene_, asked.demand)
    assert want is None or want >= min(least)


@given(st.integers(0, 6), st.integers(0, 6))
def test_two_needs_together_cost_no_less_than_each(first, second):
    """Otherwise the search for several pods would leave out nodes that are cheaper than they seem."""
    victims = [victim("a", 3, saved=NOW - 5), victim("b", 1, team="team-c", started=9), victim("c", 2, saved=7)]
    there = scene(victims, over_share={TeamName("team-a"): 2, TeamName("team-c"): 7})
    bounds, on = CostBounds(there, TeamName("team-b")), there.victim_index.on("n0")
    apart = [bounds.of(on, gpus * ONE_GPU) for gpus in (first, second)]
    both = bounds.of(on, (first + second) * ONE_GPU)
    if first + second <= 6:
        assert all(one + other <= together for one, other, together in zip(*apart, both, strict=True))


@pytest.mark.parametrize("started", [NOW + 50, NOW])
def test_a_start_in_the_future_is_no_age(started):
    there = scene([victim("a", 3, started=started)], over_share={TeamName("team-a"): 1})
    assert CostBounds(there, TeamName("team-b")).of_one(there.victim_index.on("n0"), ONE_GPU).age == 0
