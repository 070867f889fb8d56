"""The GPUs of the nodes and how many free ones are useful: against numbers by hand, and against a plain scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GIB, GPU, demand, gpus, node, policy, resident, world
from webhook.core.model.amounts import CPU, MEMORY, ONE_GPU, GpuModel, NodeName, ResourceName
from webhook.core.model.constraints import HELD, Effect, Taint
from webhook.core.model.node import Devices, Node
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.placement.best_nodes import gpu_inventory

H100, A100 = GpuModel("H100"), GpuModel("A100")


def inventory(world_):
    return {(each.model, each.resource): each for each in gpu_inventory(world_.fleet, world_.policy)}


def test_capacity_counts_all_nodes_and_free_counts_open_ones():
    nodes = [node("n0", gpus=8), node("n1", gpus=8, is_cordoned=True), node("n2", gpus=8, is_ready=False)]
    (stock,) = inventory(world(nodes=nodes, residents=[resident(3, node="n0"), resident(2, node="n1")])).values()
    assert (stock.capacity, stock.closed, stock.free, stock.largest) == (gpus(24), gpus(16), gpus(5), gpus(5))


def test_models_and_resources_are_separate_and_weighed_by_policy():
    slices = ResourceName("nvidia.com/mig-1g.5gb")
    cut = Node(NodeName("n2"), {slices: 14}, model=A100)
    sliced = policy(resources={**BUILT_IN_RESOURCES, slices: ONE_GPU // 7})
    found = inventory(world(sliced, nodes=[node("n0", model=H100), node("n1", model=A100), cut]))
    want = {(H100, GPU): gpus(10), (A100, GPU): gpus(10), (A100, slices): gpus(2)}
    assert {key: stock.capacity for key, stock in found.items()} == want


def test_a_model_named_by_two_labels_is_one():
    nodes = [node("n0", model=H100, model_label="a"), node("n1", model=H100, model_label="b")]
    (stock,) = inventory(world(nodes=nodes)).values()
    assert (stock.capacity, stock.whole_nodes) == (gpus(20), 2)


def test_a_resource_that_counts_nothing_is_left_out():
    weightless = policy(resources={**BUILT_IN_RESOURCES, GPU: 0})
    assert inventory(world(weightless)) == {}


def test_changed_and_removed_nodes_change_the_sums():
    made = world(nodes=[node("n0", gpus=8), node("n1", gpus=8)])
    made.set_node(node("n0", gpus=4, is_cordoned=True))
    (stock,) = inventory(made).values()
    assert (stock.capacity, stock.closed, stock.free) == (gpus(12), gpus(4), gpus(8))
    made.sort_nodes()
    made.remove_node(NodeName("n0"))
    (stock,) = inventory(made).values()
    assert (stock.capacity, stock.closed) == (gpus(8), 0)
    made.remove_node(NodeName("n1"))
    assert inventory(made) == {}


def test_gpus_without_cpu_are_fragmented():
    made = world(nodes=[node("n0", gpus=8), node("n1", gpus=8)])
    for _ in range(100):
        made.fleet.gpus.demand_mix.note(demand(1))
    made.fleet.take(NodeName("n0"), demand(0, cpu=64_000))
    (stock,) = inventory(made).values()
    assert stock.free == gpus(16)
    learned = 100 / 132  # of the expected mix; the rest is the prior, which requests no cpu
    assert stock.fragmented / ONE_GPU == pytest.approx(8 * learned, abs=0.01)


def test_free_gpus_are_useful_to_the_sizes_that_fit():
    made = world(nodes=[node("n0", gpus=8)], residents=[resident(5, node="n0")])
    (stock,) = inventory(made).values()
    arrivals, prior = 1, {1: 50, 2: 20, 4: 15, 8: 15}
    too_large = 32 * (prior[4] + prior[8]) / 100 + arrivals  # the pod of five that came is expected again
    assert stock.fragmented / ONE_GPU == pytest.approx(3 * too_large / (32 + arrivals), abs=0.01)
    assert (stock.largest, stock.whole_nodes) == (gpus(3), 0)


def test_parts_of_devices_are_free_in_parts():
    memory = ResourceName("aliyun.com/gpu-mem")
    shared = Node(NodeName("n0"), {memory: 32}, devices=Devices(memory, (16, 16)))
    made = world(policy(resources={memory: ONE_GPU // 16}), nodes=[shared])
    (stock,) = inventory(made).values()
    assert (stock.capacity, stock.free, stock.largest, stock.whole_nodes) == (gpus(2), gpus(2), gpus(2), 1)


def test_a_node_whose_devices_are_all_gone_has_none():
    memory = ResourceName("aliyun.com/gpu-mem")
    made = world(policy(resources={memory: ONE_GPU // 16}), nodes=[])
    for capacities, want in (((0, 0), 0), ((16, 0), 1), ((0, 0), 0)):
        made.set_node(Node(NodeName("n0"), {memory: sum(capacities)}, devices=Devices(memory, capacities)))
        assert sum(stock.capacity for stock in inventory(made).values()) == gpus(want)


def useless(made):
    """The fragment rate of the paper: for each size, the free GPUs of nodes on which it does not fit."""
    weights = made.fleet.gpus.demand_mix.expected(GPU)
    total = 0
    for each in made.fleet.nodes():
        free = {name: made.fleet.free(each.name, name) for name in (GPU, CPU, MEMORY)} if each.is_open else {GPU: 0}
        for shape, weight in weights.items():
            if free[GPU] and not (
                shape.number <= free[GPU] and shape.cpu <= free[CPU] and shape.memory <= free[MEMORY]
            ):
                total += free[GPU] * weight
    return total / sum(weights.values())


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([8, 16, 64]), st.booleans()), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from([1, 4, 9])), max_size=12),
)
def test_sums_over_classes_equal_a_scan(nodes, pods):
    made = world(
        nodes=[
            node(f"n{i}", gpus=number, cpu=cpu * 1000, memory=64 * GIB, is_cordoned=cordoned)
            for i, (number, cpu, cordoned) in enumerate(nodes)
        ]
    )
    for place, number, cpu in pods:
        name = NodeName(f"n{place % len(nodes)}")
        wanted = demand(number, cpu=cpu * 1000, memory=8 * GIB)
        if made.fleet.fits(name, wanted):
            made.set_pod(resident(demand=wanted, node=name))
    found = list(gpu_inventory(made.fleet, made.policy))
    open_ = [each for each in made.fleet.nodes() if each.is_open]
    assert sum(each.free for each in found) == gpus(sum(made.fleet.free(each.name, GPU) for each in open_))
    assert sum(each.capacity for each in found) == gpus(sum(number for number, _, _ in nodes))
    assert sum(each.fragmented for each in found) / ONE_GPU == pytest.approx(useless(made), abs=0.02)


def test_what_is_held_for_waiting_pods_is_not_free_for_others():
    hold = (Taint(HELD, Effect.NO_SCHEDULE, "h"),)
    nodes = [node("n0", gpus=8), node("n1", gpus=8, taints=hold), node("n2", gpus=8, taints=hold, is_cordoned=True)]
    (stock,) = inventory(world(nodes=nodes, residents=[resident(3, node="n1")])).values()
    assert (stock.capacity, stock.closed, stock.held, stock.free) == (gpus(24), gpus(8), gpus(5), gpus(8))
    assert (stock.largest, stock.whole_nodes) == (gpus(8), 1)
