"""What pods lack on nodes, alone and together."""

from dataclasses import replace

from tests.core.support.make import GPU, demand
from tests.core.support.scenes import SMALL, scene, victim
from webhook.core.model.amounts import CPU, ONE_GPU
from webhook.core.model.demand import PerDevice
from webhook.core.reclaim.victim_search import missing_gpus, missing_on, shortfall

TWO = demand(2, **SMALL)
THREE = demand(3, **SMALL)


def fleet(free):
    """Nodes of 8 GPUs, of which so many are free."""
    return scene([victim(f"v{n}", 8 - count, on=f"n{n}") for n, count in enumerate(free)], nodes=len(free)).fleet


def test_pods_on_one_node_lack_what_their_sum_lacks():
    there = fleet([4, 0])
    need = shortfall(there, {"n0": (TWO, THREE), "n1": (TWO,)})
    assert need.amounts == {("n0", GPU): 1, ("n1", GPU): 2}
    assert need.missing_gpus == 3 * ONE_GPU
    assert shortfall(there, {"n0": (TWO, TWO)}).amounts == {}


def test_other_amounts_count_and_are_no_gpus():
    need = shortfall(fleet([8]), {"n0": (demand(1, cpu=10**9),)})
    assert list(need.amounts) == [("n0", CPU)]
    assert need.missing_gpus == 0


def test_single_devices_are_asked_for_by_the_only_pod():
    ask = PerDevice(GPU, 1)
    assert shortfall(fleet([0]), {"n0": (replace(TWO, per_device=ask),)}).per_device == ask


def test_the_missing_gpus_of_many_nodes_are_those_of_each():
    there = fleet([0, 1, 5])
    every = sum(there.bit(f"n{n}") for n in range(3))
    found = missing_on(there, every, THREE)
    assert found == [(f"n{n}", missing_gpus(there, f"n{n}", (THREE,))) for n in range(3)]
    assert [missing for _, missing in found] == [3 * ONE_GPU, 2 * ONE_GPU, 0]


def test_pods_of_several_resources_have_no_known_lack():
    both = replace(TWO, devices=((GPU, 1), ("example.com/gpu", 1)))
    there = fleet([0])
    assert missing_gpus(there, "n0", (both,)) == 0
    assert missing_on(there, there.bit("n0"), both) == [("n0", 0)]
