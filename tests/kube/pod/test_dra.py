"""Claims, templates and PodGroups as core values."""

import json
from fractions import Fraction

import msgspec
import pytest

from webhook.core.devices.claim_users import ALL_DEVICES, AllocatedAt, ClassCount, DeviceRequest, GroupEntry
from webhook.core.devices.slices import DevicePart
from webhook.core.model.constraints import DomainRequest
from webhook.kube.pod import devices

GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"


def read(kind, **manifest):
    manifest.setdefault("metadata", {"name": "x", "namespace": "vision"})
    return msgspec.json.decode(json.dumps(manifest), type=kind)


def claim(*requests, results=None, **metadata):
    status = {} if results is None else {"allocation": {"devices": {"results": [{"request": r} for r in results]}}}
    metadata = {"name": "x", "namespace": "vision", **metadata}
    return devices.to_claim(
        read(devices.ResourceClaim, metadata=metadata, spec={"devices": {"requests": list(requests)}}, status=status)
    )


def exactly(name="gpus", device_class=GPU, **more):
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


FIRST = {
    "name": "any",
    "firstAvailable": [
        {"name": "one", "deviceClassName": GPU, "count": 1},
        {"name": "slices", "deviceClassName": MIG, "count": 4},
    ],
}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        (exactly(), DeviceRequest((ClassCount(GPU, 1),))),
        (exactly(allocationMode="ExactCount", count=3), DeviceRequest((ClassCount(GPU, 3),))),
        (exactly(allocationMode="All"), DeviceRequest((ClassCount(GPU, ALL_DEVICES),))),
        ({"name": "gpus", "deviceClassName": GPU, "count": 3}, DeviceRequest((ClassCount(GPU, 3),))),  # v1beta1
        ({"name": "gpus"}, DeviceRequest((ClassCount("", 1),))),  # of a later version: not counted as none
        (exactly(count=2, adminAccess=True), DeviceRequest((ClassCount(GPU, 2),), is_admin=True)),
        (FIRST, DeviceRequest((ClassCount(GPU, 1), ClassCount(MIG, 4)))),
    ],
)
def test_every_form_of_a_request_is_read(request_, want):
    assert claim(request_) == (want,)
    template = {"spec": {"devices": {"requests": [request_]}}}
    assert devices.to_template(read(devices.ResourceClaimTemplate, spec=template)) == (want,)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ('device.driver == "nic.x.dev"', "nic.x.dev"),
        ('device.driver == "nic.x.dev" && device.attributes["nic.x.dev"].rdma == true', "nic.x.dev"),
        ('device.driver == "gpu.nvidia.com"', GPU),
        ("true", ""),
        ('device.driver == "nic.x.dev" || true', ""),
        ('!(device.driver == "nic.x.dev")', ""),
        ("'a && device.driver == \"nic.x.dev\" && b' != ''", ""),
        (r'device.driver == "\x67\x70u.nvidia.com"', ""),
        ('device.driver == "nic.x.dev" ? false : true', ""),
    ],
)
def test_a_claims_cel_selects_a_driver_only_if_all_conditions_are_plain(expression, want):
    selectors = [{"cel": {"expression": expression}}]
    ((counted,),) = [request.alternatives for request in claim(exactly(selectors=selectors))]
    assert (counted.device_class, counted.number, counted.driver) == (GPU, 1, want)


def test_an_allocated_claim_has_the_drivers_of_its_devices():
    allocation = {"devices": {"results": [{"request": "gpus", "driver": driver} for driver in (GPU, GPU, "nic.x.dev")]}}
    found = read(devices.ResourceClaim, spec={"devices": {"requests": [exactly()]}}, status={"allocation": allocation})
    want = tuple(DeviceRequest((ClassCount(GPU, *each),)) for each in ((2, GPU), (1, "nic.x.dev")))
    assert devices.to_claim(found) == want


def test_an_allocated_claim_counts_its_allocation():
    got = claim(exactly(allocationMode="All"), FIRST, results=["gpus", "gpus", "any/slices", "any/slices"])
    assert got == (DeviceRequest((ClassCount(GPU, 2),)), DeviceRequest((ClassCount(MIG, 2),)))


def test_an_annotation_of_kube_scheduler_changes_nothing_for_pods_that_name_the_claim():
    marked = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim(exactly(), annotations=marked) == claim(exactly())


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], "n1"),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]}], None),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}], None),
        ([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["n1"]}]}], None),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}] * 2, None),
        (None, None),
    ],
    ids=["a node", "two nodes", "any other node", "a zone", "alternatives", "everywhere"],
)
def test_an_allocated_claim_has_the_node_of_its_devices(selector, want):
    allocation = {"devices": {}, "nodeSelector": None if selector is None else {"nodeSelectorTerms": selector}}
    found = read(devices.ResourceClaim, spec={}, status={"allocation": allocation})
    assert devices.allocated_at(found) == AllocatedAt(want)
    assert devices.allocated_at(read(devices.ResourceClaim, spec={})) is None


def test_a_pod_group_may_ask_for_one_domain():
    def asked(*keys):
        listed = {"topology": [{"key": key} for key in keys]}
        return devices.domain_of_group(read(devices.PodGroup, spec={"schedulingConstraints": listed}))

    assert asked("example.com/rack") == DomainRequest("example.com/rack", is_required=True)
    assert asked() is None
    assert asked("x" * 100_000) is None
    assert devices.domain_of_group(read(devices.PodGroup)) is None


def test_a_pod_group_shares_claims_from_templates():
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}, {"name": "own", "resourceClaimName": "x"}]
    group = read(devices.PodGroup, spec={"resourceClaims": claims, "schedulingPolicy": {"gang": {"minCount": 2}}})
    assert devices.to_group(group) == {GroupEntry("gpus", "two")}
    assert devices.to_group(read(devices.PodGroup)) == frozenset()


def test_an_allocated_claim_has_its_parts_of_shared_devices():
    memory = {"shareID": "a671734a", "consumedCapacity": {"memory": "10Gi"}}
    results = [
        {"request": "gpus", "driver": GPU, "pool": "n0", "device": "gpu-0", **memory},
        {"request": "gpus", "driver": GPU, "pool": "n0", "device": "gpu-1"},
        {
            "request": "gpus",
            "driver": GPU,
            "pool": "n0",
            "device": "gpu-2",
            **memory,
            "consumedCapacity": {"memory": "?"},
        },
    ]
    found = read(
        devices.ResourceClaim,
        spec={"devices": {"requests": [exactly(count=3)]}},
        status={"allocation": {"devices": {"results": results}}},
    )
    parts = (
        DevicePart(f"{GPU}/n0", "gpu-0", (("memory", Fraction(10 * 2**30)),)),
        DevicePart(f"{GPU}/n0", "gpu-2", ()),
    )
    assert devices.to_claim(found) == (DeviceRequest((ClassCount(GPU, 3, GPU, parts),)),)


def test_a_request_for_some_of_a_capacity_may_get_a_part():
    wanted = exactly(count=1, capacity={"requests": {"memory": "10Gi"}})
    assert claim(wanted) == (DeviceRequest((ClassCount(GPU, 1, may_be_part=True),)),)
