"""The devices of nodes by their slices."""

from tests.core.support import make
from tests.core.support.claims import GPU_CLASS, SHARED, SHARING, resident, spec, world
from webhook.core.dra.dra_slices import ClassCondition, Slice, SliceDevice
from webhook.core.model.device_class import DeviceClass


def test_claims_and_requests_share_the_devices_of_a_node():
    place = world()
    mapped = GPU_CLASS._replace(extended_resource=make.GPU)
    place.set_device_class(mapped.name, mapped, ClassCondition("", "gpu.nvidia.com"), ClassCondition("d/type", "gpu"))
    place.set_node(make.node("sliced", gpus=0))
    gpu, mig = SliceDevice("gpu.nvidia.com", {"d/type": "gpu"}), SliceDevice("gpu.nvidia.com", {"d/type": "mig"})
    place.set_slice("s", Slice("sliced", "p", 1, (gpu, gpu, gpu, mig)))
    assert place.fleet.free("sliced", make.GPU) == 3
    place.set_claim(SHARED, spec(2))
    place.set_pod(resident("a", SHARING, node="sliced"))
    assert place.fleet.free("sliced", make.GPU) == 1
    place.set_slice("s2", Slice("sliced", "p", 2, (gpu,)))  # the driver publishes its devices again, slice by slice
    assert place.fleet.free("sliced", make.GPU) == -1
    place.set_slice("s2", None)
    place.remove_pod("a")
    assert place.fleet.free("sliced", make.GPU) == 3
    place.set_slice("s", None)
    assert place.fleet.free("sliced", make.GPU) == 0


def test_devices_of_a_device_plugin_replace_those_of_slices():
    place = world()
    place.set_device_class("c", DeviceClass("c", make.GPU))
    place.set_slice("s", Slice("n0", "p", 1, (SliceDevice("x", {}),)))
    assert place.fleet.free("n0", make.GPU) == 10
