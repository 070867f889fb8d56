"""What the devices of classes count, and under which of their names."""

from dataclasses import replace

from tests.core.support import make
from tests.core.support.claims import SHARED, SHARING, bare, charged, resident, spec, world
from webhook.core.devices.slices import ClassCondition, Slice, SliceDevice
from webhook.core.model.amounts import ONE_GPU, PODS
from webhook.core.model.demand import demand_of
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.policy.sections import BUILT_IN


def test_the_newer_of_two_classes_with_one_resource_wins():
    place = world()
    place.set_device_class("old", DeviceClass("old", "x.dev/fast", "2026-01-01T00:00:00Z"))
    place.set_device_class("new", DeviceClass("new", "x.dev/fast", "2026-02-01T00:00:00Z"))
    name = DeviceClass("new").implicit_resource
    place.set_policy(replace(place.policy, resources={**BUILT_IN, name: 3 * ONE_GPU}, hash="p2"))
    place.set_pod(make.resident(uid="a", demand=bare(**{"x.dev/fast": 1})))
    assert charged(place) == 3
    place.set_device_class("new", None)
    assert charged(place) == 0


def six_devices(**more):
    """A node whose six devices have three names, and the same under a policy that weighs two of them."""
    place = make.world(make.policy(resources=BUILT_IN, **more), nodes=[make.node("n0", gpus=0)])
    mapped = DeviceClass("gpu.nvidia.com", "nvidia.com/gpu", mentions_gpus=True)
    place.set_device_class(mapped.name, mapped, ClassCondition("", "gpu.nvidia.com"))
    place.set_slice("s", Slice("n0", "gpu.nvidia.com/n0", 1, (SliceDevice("gpu.nvidia.com", {}),) * 6))
    return place


IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def test_all_names_of_a_class_share_one_capacity():
    place = six_devices()
    place.set_pod(make.resident(3, uid="by-resource", node="n0"))
    place.set_pod(make.resident(uid="by-class", node="n0", demand=demand_of({IMPLICIT: 1, PODS: 1}, BUILT_IN)))
    (stock,) = gpu_inventory(place.fleet, place.policy)
    assert (stock.resource, stock.capacity, stock.free) == (make.GPU, 6 * ONE_GPU, 2 * ONE_GPU)
    assert charged(place) == 4
    three = make.pod(demand=demand_of({IMPLICIT: 3, PODS: 1}, BUILT_IN))
    assert not place.fleet.fits("n0", place.with_claims(three).demand)
    place.remove_pod("by-class")
    assert place.fleet.fits("n0", place.with_claims(three).demand)


def test_a_class_requires_nodes_with_its_devices_by_dra():
    place = six_devices()
    place.set_node(make.node("plugged", gpus=8))
    asks = make.pod(demand=demand_of({IMPLICIT: 8, PODS: 1}, BUILT_IN))
    assert not place.fleet.with_capacity(place.with_claims(asks).demand, -1)
    assert place.fleet.fits("plugged", make.demand(8))


def test_the_older_of_two_classes_with_one_resource_has_a_separate_capacity():
    place = six_devices()
    newer = DeviceClass("our-gpus", "nvidia.com/gpu", "2026-01-01T00:00:00Z", mentions_gpus=True)
    place.set_device_class(newer.name, newer, ClassCondition("", "others.example"))
    node = place.fleet.get("n0")
    assert node.allocatable.get("nvidia.com/gpu", 0) == 0, (
        "kube-scheduler assigns devices of the newer class, which has none"
    )
    assert [offer.resource for offer in node.offers(BUILT_IN)] == [IMPLICIT]
    place.set_pod(resident("a", SHARING, node="n0"))
    place.set_claim(SHARED, spec(2))
    assert place.fleet.free("n0", IMPLICIT) == 4


def test_a_resource_without_a_weight_uses_the_capacity_of_its_class():
    weights = {name: weight for name, weight in BUILT_IN.items() if name != "nvidia.com/gpu"}
    place = six_devices()
    place.set_policy(make.policy(resources=weights))
    place.set_pod(make.resident(uid="u", node="n0", demand=demand_of({"nvidia.com/gpu": 2, PODS: 1}, weights)))
    assert (place.fleet.free("n0", IMPLICIT), charged(place)) == (4, 2)
