"""Claims, templates, classes and slices of resource.k8s.io/v1 as core values."""

import json

import msgspec
import pytest

from webhook.core.dra.dra_claims import ALL_DEVICES, ClassCount, DeviceRequest, GroupEntry
from webhook.core.dra.dra_slices import Condition, Device, Slice
from webhook.core.model.device_class import DeviceClass
from webhook.core.model.domain_request import DomainRequest
from webhook.kube.pod import dra

GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"


def read(kind, **manifest):
    manifest.setdefault("metadata", {"name": "x", "namespace": "vision"})
    return msgspec.json.decode(json.dumps(manifest), type=kind)


def claim(*requests, results=None, **metadata):
    status = {} if results is None else {"allocation": {"devices": {"results": [{"request": r} for r in results]}}}
    metadata = {"name": "x", "namespace": "vision", **metadata}
    return dra.to_claim(
        read(dra.ResourceClaim, metadata=metadata, spec={"devices": {"requests": list(requests)}}, status=status)
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
        (exactly(count=2, adminAccess=True), DeviceRequest((ClassCount(GPU, 2),), is_admin=True)),
        (FIRST, DeviceRequest((ClassCount(GPU, 1), ClassCount(MIG, 4)))),
    ],
)
def test_every_form_of_a_request_is_read(request_, want):
    assert claim(request_) == (want,)
    template = {"spec": {"devices": {"requests": [request_]}}}
    assert dra.to_template(read(dra.ResourceClaimTemplate, spec=template)) == (want,)


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
    assert claim(exactly(selectors=selectors)) == (DeviceRequest((ClassCount(GPU, 1, want),)),)


def test_an_allocated_claim_has_the_drivers_of_its_devices():
    allocation = {"devices": {"results": [{"request": "gpus", "driver": driver} for driver in (GPU, GPU, "nic.x.dev")]}}
    found = read(dra.ResourceClaim, spec={"devices": {"requests": [exactly()]}}, status={"allocation": allocation})
    want = tuple(DeviceRequest((ClassCount(GPU, *each),)) for each in ((2, GPU), (1, "nic.x.dev")))
    assert dra.to_claim(found) == want


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
    found = read(dra.ResourceClaim, spec={}, status={"allocation": allocation})
    assert dra.node_of_claim(found) == want
    assert dra.node_of_claim(read(dra.ResourceClaim, spec={})) is None


def device_class(*expressions, **spec):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    metadata = {"name": "x", "creationTimestamp": None}
    return read(dra.DeviceClassObject, metadata=metadata, spec={"selectors": selectors, **spec})


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("device.driver == 'gpu.nvidia.com'", (Condition("", GPU),)),
        (
            'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"',
            (Condition("", GPU), Condition("gpu.nvidia.com/type", "mig")),
        ),
        ("device.attributes['x.dev'].cores == 42", (Condition("x.dev/cores", 42),)),
        ("device.attributes['x.dev'].fast == true", (Condition("x.dev/fast", True),)),
        ("device.attributes['x.dev'].uuid == 'GPU-1'", ()),
        ("device.driver == 'a' || device.driver == 'b'", ()),
        ("device.capacity['x.dev'].memory.compareTo(quantity('1Gi')) > 0", ()),
    ],
)
def test_plain_conditions_of_a_class_are_read(expression, want):
    assert dra.conditions_of(device_class(expression)) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (device_class(), DeviceClass("x", is_open=True)),
        (device_class("device.driver == 'nic.x.dev'"), DeviceClass("x")),
        (device_class("device.driver == 'gpu.x.dev'"), DeviceClass("x", mentions_gpus=True)),
        (
            device_class(extendedResourceName="nvidia.com/gpu"),
            DeviceClass("x", "nvidia.com/gpu", mentions_gpus=True, is_open=True),
        ),
        (device_class("device.driver in ['a.dev', 'b.dev'] && true"), DeviceClass("x")),
        (device_class("device.driver == 'a.dev' || device.driver == 'b.dev'"), DeviceClass("x")),
        (device_class("device.driver == 'a.dev' || device.attributes['a'].b"), DeviceClass("x", is_open=True)),
        (device_class("device.driver == 'a.dev' ? true : true"), DeviceClass("x", is_open=True)),
        (device_class("!(device.driver == 'a.dev')"), DeviceClass("x", is_open=True)),
        (device_class("true", "device.driver == 'a.dev'"), DeviceClass("x")),
    ],
)
def test_a_class_concerns_gpus_by_name_resource_or_selector(found, want):
    assert dra.to_class(found) == want


def test_a_slice_has_qualified_attributes_and_no_tainted_devices():
    spec = {
        "driver": GPU,
        "nodeName": "n0",
        "pool": {"name": "n0", "generation": 3},
        "devices": [
            {
                "name": "a",
                "attributes": {"type": {"string": "gpu"}, "x.dev/index": {"int": 0}, "uuid": {"string": "GPU-1"}},
            },
            {"name": "b", "attributes": {"ecc": {"bool": False}}, "taints": [{"effect": "None"}]},
            {"name": "c", "taints": [{"effect": "NoSchedule"}]},
        ],
    }
    found = dra.to_slice(read(dra.ResourceSlice, spec=spec))
    devices = (Device(GPU, {f"{GPU}/type": "gpu", "x.dev/index": 0}), Device(GPU, {f"{GPU}/ecc": False}))
    assert found == Slice("n0", f"{GPU}/n0", 3, devices)
    assert dra.to_slice(read(dra.ResourceSlice, spec={**spec, "nodeName": None, "allNodes": True})) is None


def test_a_pod_group_may_ask_for_one_domain():
    def asked(*keys):
        listed = {"topology": [{"key": key} for key in keys]}
        return dra.domain_of_group(read(dra.PodGroup, spec={"schedulingConstraints": listed}))

    assert asked("example.com/rack") == DomainRequest("example.com/rack", is_required=True)
    assert asked() is None
    assert asked("x" * 100_000) is None
    assert dra.domain_of_group(read(dra.PodGroup)) is None


def test_a_pod_group_shares_claims_from_templates():
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}, {"name": "own", "resourceClaimName": "x"}]
    group = read(dra.PodGroup, spec={"resourceClaims": claims, "schedulingPolicy": {"gang": {"minCount": 2}}})
    assert dra.to_group(group) == {GroupEntry("gpus", "two")}
    assert dra.to_group(read(dra.PodGroup)) == frozenset()
