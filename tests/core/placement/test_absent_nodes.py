"""Nodes that left or shrank are expected back for an hour."""

from tests.core.support.make import GPU, demand, node, pod, policy, world
from tests.core.support.outcomes import outcome_of, selecting
from webhook.core.devices.slices import Slice, SliceDevice
from webhook.core.model.amounts import Namespace, NodeName, ResourceName
from webhook.core.model.constraints import Constraints
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.reasons import Code
from webhook.core.placement.rejecting_nodes import ABSENT_SECONDS
from webhook.core.world.world import World


class TestAway:
    def live(self):
        place = World(policy(), is_live=True)
        place.set_namespace(NamespaceFacts(Namespace("team-a")))
        place.set_node(node("large", gpus=16))
        place.set_node(node("small", gpus=4))
        place.tick(1_000)
        return place

    def test_a_node_that_left_is_expected_back_for_an_hour(self):
        place = self.live()
        place.remove_node("large")
        place.tick(2_000)
        outcome, code, text = outcome_of(pod(16), place)
        assert (outcome, code) == ("waits", Code.NO_ROOM_NOW)
        assert text.endswith("; 1 node that could hold it left, or offered more, within the last hour")
        assert outcome_of(pod(17), place)[:2] == ("refused", Code.NEVER_FITS)
        place.tick(2_000 + ABSENT_SECONDS)
        assert outcome_of(pod(16), place)[:2] == ("refused", Code.NEVER_FITS)

    def test_a_node_whose_devices_are_gone_for_a_while_counts_too(self):
        place = self.live()
        for left in (8, 0):
            place.set_node(node("large", gpus=left))
            place.tick(place.now + 10)
            assert outcome_of(pod(16), place)[:2] == ("waits", Code.NO_ROOM_NOW)

    def test_devices_that_only_capacity_had_are_remembered(self):
        """Fairgate starts while a plugin is gone; five minutes after that kubelet takes its devices out of capacity."""
        place = self.live()
        place.set_node(node("large", gpus=0, at_best={GPU: 24}))
        place.set_node(node("large", gpus=0))
        place.tick(2_000)
        assert outcome_of(pod(24), place)[:2] == ("waits", Code.NO_ROOM_NOW)
        assert outcome_of(pod(25), place)[:2] == ("refused", Code.NEVER_FITS)
        place.tick(2_000 + ABSENT_SECONDS)
        assert outcome_of(pod(24), place)[:2] == ("refused", Code.NEVER_FITS)

    def test_devices_of_withdrawn_slices_are_remembered(self):
        place = self.live()
        place.set_device_class("gpu.nvidia.com", DeviceClass("gpu.nvidia.com", extended_resource=ResourceName(GPU)))
        place.set_node(node("dra", gpus=0))
        place.set_slice("s", Slice(NodeName("dra"), "pool", 1, (SliceDevice("gpu.nvidia.com", {}),) * 24))
        assert outcome_of(pod(24), place)[0] == "runs"
        place.set_slice("s", None)
        assert outcome_of(pod(24), place)[:2] == ("waits", Code.NO_ROOM_NOW)

    def test_a_node_that_lost_its_label_counts_too(self):
        place = self.live()
        place.set_node(node("large", gpus=16, labels={"pool": "a"}))
        place.set_node(node("large", gpus=16))
        assert outcome_of(pod(16, **selecting(pool="a")), place)[:2] == ("waits", Code.NO_ROOM_NOW)
        assert outcome_of(pod(16, **selecting(pool="b")), place)[:2] == ("refused", Code.NEVER_FITS)

    def test_what_comes_back_is_used(self):
        place = self.live()
        place.remove_node("large")
        place.set_node(node("large", gpus=16))
        assert outcome_of(pod(16), place)[0] == "runs"

    def test_the_number_of_remembered_nodes_is_bounded(self):
        place = self.live()
        for i in range(1_100):
            place.set_node(node(f"spot-{i}", gpus=2))
            place.remove_node(f"spot-{i}")
        assert not place.absent_nodes.capable(demand(17), Constraints())
        assert len(place.absent_nodes.capable(demand(1), Constraints())) == 1_000

    def test_a_world_file_has_no_absent_nodes(self):
        place = world(nodes=[node("large", gpus=16), node("small", gpus=4)])
        place.remove_node("large")
        assert outcome_of(pod(16), place)[:2] == ("refused", Code.NEVER_FITS)
        assert not place.absent_nodes.offers(ResourceName(GPU))
