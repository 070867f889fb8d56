"""Ratios of the use of GPUs: what they are of, and that they stay within 0 and 1."""

from collections import Counter
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import node
from webhook.core.explain.node_rows import ClusterUse, PodsOnNodes, PodUse, beyond_fewest, capacities
from webhook.core.model.amounts import ONE_GPU, GangId
from webhook.core.model.policy import Policy

NODES = {f"n{n}": 8 * ONE_GPU for n in range(3)}
places = st.builds(
    PodUse, st.sampled_from(sorted(NODES)), st.integers(1, 9000), st.sampled_from([None, GangId("g"), GangId("h")])
)
changes = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | places), max_size=30)


def use(*pods, gpus=NODES):
    there = PodsOnNodes()
    for number, pod in enumerate(pods):
        there.set(f"p{number}", pod)
    return there.use(gpus)


def test_an_empty_world_has_no_use():
    assert use(gpus={}) == ClusterUse()
    assert (ClusterUse().allocation, ClusterUse().fragmentation, ClusterUse().beyond_fewest) == (0, 0, 0)


def test_idle_nodes_are_held_neither_wholly_nor_in_part():
    found = use()
    assert (found.gpus, found.nodes, found.allocation, found.fragmentation) == (24, 3, 0, 0)


def test_a_part_of_a_node_is_held_a_whole_one_is_not_a_part():
    found = use(PodUse("n0", 8 * ONE_GPU), PodUse("n1", ONE_GPU // 4))
    assert (found.held, found.partly) == (8.25, 1)
    assert found.allocation == 8.25 / 24
    assert found.fragmentation == 1 / 3


def test_a_node_of_which_more_is_held_than_it_has_counts_whole_and_a_gone_one_not():
    found = use(PodUse("n0", 9 * ONE_GPU), PodUse("gone", ONE_GPU))
    assert (found.held, found.partly) == (8, 0)


def test_gangs_on_the_fewest_nodes_are_not_spread():
    pods = [PodUse(f"n{n % 2}", 4 * ONE_GPU, GangId("g")) for n in range(4)]
    assert (use(*pods).spread, use(*pods).beyond_fewest) == (16, 0)
    spread = [PodUse(f"n{n % 3}", 2 * ONE_GPU, GangId("h")) for n in range(3)]
    assert use(*spread).beyond_fewest == 2 / 3, "one node could hold them"
    assert use(PodUse("n0", ONE_GPU, GangId("alone"))).spread == 0


def test_only_nodes_with_gpus_count():
    there = [node("gpu", gpus=8), node("cpu", gpus=0)]
    assert capacities(there, Policy()) == {"gpu": 8 * ONE_GPU}


@given(changes)
def test_ratios_stay_within_bounds_and_changes_amount_to_what_is_there(steps):
    there, kept = PodsOnNodes(), {}
    for uid, pod in steps:
        there.set(uid, pod)
        kept[uid] = pod
        found = there.use(NODES)
        assert all(0 <= part <= 1 for part in (found.allocation, found.fragmentation, found.beyond_fewest))
        assert found.held <= found.gpus
        assert found.beyond <= found.spread
        assert found.partly <= found.nodes
    pods = [pod for pod in kept.values() if pod is not None]
    assert there.use(NODES) == use(*pods)
    held = Counter()
    for pod in pods:
        held[pod.node] += pod.gpus
    assert there.held_on == held


@given(st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_the_fewest_nodes_of_equal_pods_are_those_of_the_best_packing(sizes):
    size, largest = sizes[0], 8
    pods = [size] * len(sizes)
    fits = [
        len(set(chosen))
        for chosen in product(range(len(pods)), repeat=len(pods))
        if max(Counter(chosen).values()) * size <= largest
    ]
    assert beyond_fewest(pods, len(pods), largest) == (len(pods) - min(fits)) / len(pods)


def test_pods_of_several_sizes_and_fractions_need_what_their_sum_needs():
    assert beyond_fewest([Fraction(1, 7)] * 7, 2, 1) == 0.5
    assert beyond_fewest([3, 5], 2, 8) == 0.5
    assert beyond_fewest([9, 9], 2, 8) == 0, "larger than any node"
    assert beyond_fewest([], 0, 8) == beyond_fewest([1], 1, 0) == 0
