"""The devices of nodes by their slices."""

from tests.core.support import make
from tests.core.support.claims import GPU_CLASS, SHARED, SHARING, resident, spec, world
from webhook.core.devices.claim_users import AllocatedAt
from webhook.core.devices.slices import ClassCondition, Slice, SliceDevice, TaintRule, with_tainted
from webhook.core.model.amounts import ResourceName
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.gpu_shares import DeviceClass


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


MEMORY = ResourceName("x counter memory")
TAINT = Taint("worn", Effect.NO_SCHEDULE)


def partitions(whole=2, part=1, **more):
    kinds = (("gpu", whole), ("mig", part))
    devices = tuple(SliceDevice("x", {"x/type": kind}, consumes=((MEMORY, size),)) for kind, size in kinds)
    return Slice("n0", "x/p", 1, devices, counters=((MEMORY, 2),), **more)


def by_type(place, *kinds):
    for kind in kinds:
        place.set_device_class(kind, DeviceClass(kind), ClassCondition("x/type", kind))


def facts(place, name, *conditions):
    return place.claims.classes.facts_of(name, conditions)


def test_a_class_takes_the_least_that_its_devices_take_of_their_counters():
    place = world()
    by_type(place, "gpu", "mig")
    place.set_slice("s", partitions())
    assert [facts(place, name).consumes for name in ("gpu", "mig")] == [((MEMORY, 2),), ((MEMORY, 1),)]
    place.set_slice("larger", Slice("n0", "x/q", 1, partitions(4, 3).devices))
    assert [facts(place, name).consumes for name in ("gpu", "mig")] == [((MEMORY, 2),), ((MEMORY, 1),)]
    place.set_slice("s", None)
    assert [facts(place, name).consumes for name in ("gpu", "mig")] == [((MEMORY, 4),), ((MEMORY, 3),)]
    assert facts(place, "gpu", ClassCondition("x/type", "mig")) == (False, frozenset(), ())


def test_nodes_whose_devices_share_no_counters_are_not_limited_by_them():
    place = world()
    by_type(place, "gpu")
    place.set_node(make.node("n1"))
    place.set_slice("s", partitions())
    place.set_slice("plain", Slice("n1", "x/n1", 1, (SliceDevice("x", {"x/type": "gpu"}),)))
    assert place.fleet.free("n0", MEMORY) == 2
    assert place.fleet.free("n1", MEMORY) > 10**15


def test_a_class_is_local_while_no_device_of_it_is_shared_by_nodes():
    place = world()
    by_type(place, "gpu")
    assert not facts(place, "gpu").is_local
    place.set_slice("s", partitions())
    assert facts(place, "gpu").is_local
    place.set_slice("net", Slice("", "x/net", 1, (SliceDevice("x", {"x/type": "gpu"}),)))
    assert not facts(place, "gpu").is_local


def test_a_tainted_device_counts_while_it_is_in_use():
    place = world()
    by_type(place, "gpu")
    resource = DeviceClass("gpu").implicit_resource
    gpu = SliceDevice("x", {"x/type": "gpu"})
    place.set_slice("s", Slice("n0", "x/p", 1, (gpu, gpu, gpu), names=("a", "b", "c")))
    assert place.fleet.free("n0", resource) == 3
    place.set_taint_rule("r", TaintRule("x", "p", "a", TAINT))
    assert [place.fleet.free("n0", each) for each in (resource, with_tainted(resource))] == [2, 3]
    place.set_claim(SHARED, spec(1), allocated=AllocatedAt(devices=frozenset({("x/p", "a")})))
    assert place.fleet.free("n0", resource) == 3
    place.set_claim(SHARED, None)
    assert place.fleet.free("n0", resource) == 2
    place.set_taint_rule("r", TaintRule("y", "", "", TAINT))
    assert [place.fleet.free("n0", each) for each in (resource, with_tainted(resource))] == [3, 0]
