"""Devices that nodes have and do not offer now, by slot."""

from tests.core.support.make import GPU, node
from webhook.core.model.amounts import ResourceName
from webhook.core.model.demand import PerDevice
from webhook.core.model.node import Devices
from webhook.core.placement.devices import MissingDevices

MEMORY = ResourceName("aliyun.com/gpu-mem")


def test_only_nodes_that_offer_less_than_they_have_are_indexed():
    missing = MissingDevices()
    missing.change(0, None, node(gpus=8))
    assert not missing
    missing.change(1, None, node(gpus=7, at_best={GPU: 8}))
    assert missing
    assert (missing.at_least(GPU, 8), missing.at_least(GPU, 9), missing.at_least(MEMORY, 1)) == (0b10, 0, 0)
    assert (missing.most(GPU, 0b11), missing.most(GPU, 0b01), missing.most(MEMORY, 0b11)) == (8, 0, 0)
    assert (missing.held_at([0, 1], GPU), missing.held_at([0, 1], MEMORY)) == ([0, 8], [0, 0])


def test_a_node_that_offers_all_again_is_left_out():
    missing, less = MissingDevices(), node(gpus=7, at_best={GPU: 8})
    missing.change(0, None, less)
    missing.change(0, less, node(gpus=8))
    assert missing.at_least(GPU, 1) == 0


def test_single_devices_are_those_at_the_best():
    missing, whole = MissingDevices(), Devices(MEMORY, (16, 16))
    less = node(gpus=0, at_best={MEMORY: 32}, devices_at_best=whole)
    missing.change(0, None, less)
    assert missing.with_capacity(PerDevice(MEMORY, 16, 2)) == 1
    assert missing.with_capacity(PerDevice(MEMORY, 17)) == 0
    missing.change(0, less, node(gpus=0))
    assert missing.with_capacity(PerDevice(MEMORY, 16)) == 0
