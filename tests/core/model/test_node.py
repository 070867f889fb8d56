"""The GPUs that a node offers, each device under one name, and whether it is open."""

from dataclasses import replace

import pytest

from tests.core.support.make import GPU, gpus, node
from webhook.core.model.amounts import ResourceName
from webhook.core.model.node import Offer
from webhook.policy.sections import BUILT_IN

OTHER = ResourceName("example.com/gpu")
WEIGHTS = {GPU: gpus(1), OTHER: gpus(0.5)}


def with_both(**more):
    made = node(gpus=4)
    return replace(made, allocatable={**made.allocatable, OTHER: 4}, **more)


def test_gpus_are_weighed_by_policy():
    assert with_both().gpus(WEIGHTS) == gpus(6)
    assert with_both().gpus({GPU: gpus(1)}) == gpus(4)


def test_a_second_name_for_the_same_devices_counts_once():
    alias = with_both(alias_of={OTHER: GPU})
    assert list(alias.offers(WEIGHTS)) == [Offer(GPU, 4, gpus(1))]
    assert list(alias.offers({OTHER: gpus(0.5)})) == [Offer(OTHER, 4, gpus(0.5))], "unless policy weighs only that name"


def test_no_devices_are_no_offer():
    made = node(gpus=4)
    assert not list(replace(made, allocatable={**made.allocatable, GPU: 0}).offers(WEIGHTS))


def test_slices_under_the_name_of_whole_gpus_weigh_as_slices():
    sliced = node(gpus=7, model="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")
    assert sliced.slice == "nvidia.com/mig-1g.5gb"
    assert sliced.gpus(BUILT_IN) == gpus(1)
    assert node(model="NVIDIA-A100-SXM4-40GB").slice is None


@pytest.mark.parametrize(
    ("more", "want"),
    [({}, True), ({"is_ready": False}, False), ({"is_cordoned": True}, False)],
    ids=["ready", "not ready", "cordoned"],
)
def test_only_ready_nodes_that_are_not_cordoned_are_open(more, want):
    assert node(**more).is_open is want
