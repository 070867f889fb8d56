"""Classes and slices of resource.k8s.io as core values."""

import json
from fractions import Fraction

import msgspec
import pytest

from webhook.core.devices.slices import ClassCondition, SizedDevice, Slice, SliceDevice
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.gpu_shares import DeviceClass
from webhook.kube.pod import slices

GPU = "gpu.nvidia.com"


def read(kind, **manifest):
    manifest.setdefault("metadata", {"name": "x"})
    return msgspec.json.decode(json.dumps(manifest), type=kind)


def device_class(*expressions, **spec):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    metadata = {"name": "x", "creationTimestamp": None}
    return read(slices.DeviceClassObject, metadata=metadata, spec={"selectors": selectors, **spec})


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("device.driver == 'gpu.nvidia.com'", (ClassCondition("", GPU),)),
        (
            'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"',
            (ClassCondition("", GPU), ClassCondition("gpu.nvidia.com/type", "mig")),
        ),
        ("device.attributes['x.dev'].cores == 42", (ClassCondition("x.dev/cores", 42),)),
        ("device.attributes['x.dev'].fast == true", (ClassCondition("x.dev/fast", True),)),
        ("device.attributes['x.dev'].uuid == 'GPU-1'", ()),
        ("device.driver == 'a' || device.driver == 'b'", ()),
        ("device.capacity['x.dev'].memory.compareTo(quantity('1Gi')) > 0", ()),
    ],
)
def test_plain_conditions_of_a_class_are_read(expression, want):
    assert slices.conditions_of(device_class(expression)) == want


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
    assert slices.to_class(found) == want


def test_a_slice_has_qualified_attributes_and_the_taints_that_close_devices():
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
            {"name": "c", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            {"name": "d", "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "1Ki"}}}]},
        ],
        "sharedCounters": [{"name": "s", "counters": {"memory": {"value": "2Ki"}, "odd": {"value": "?"}}}],
    }
    found = slices.to_slice(read(slices.ResourceSlice, spec=spec))
    memory = f"{GPU} counter memory"
    devices = (
        SliceDevice(GPU, {f"{GPU}/type": "gpu", "x.dev/index": 0}),
        SliceDevice(GPU, {f"{GPU}/ecc": False}),
        SliceDevice(GPU, {}, (Taint("k", Effect.NO_SCHEDULE, "v"),)),
        SliceDevice(GPU, {}, consumes=((memory, 1024),)),
    )
    names = ("a", "b", "c", "d")
    assert found == Slice("n0", f"{GPU}/n0", 3, devices, names=names, counters=((memory, 2048),))
    shared = {**spec, "nodeName": None, "allNodes": True}
    assert slices.to_slice(read(slices.ResourceSlice, spec=shared)).node == ""


@pytest.mark.parametrize(
    ("selector", "effect", "want"),
    [
        ({"driver": GPU, "pool": "n0", "device": "gpu-0"}, "NoExecute", (GPU, "n0", "gpu-0")),
        ({}, "NoSchedule", ("", "", "")),
        (None, "NoSchedule", None),
        ({}, "None", None),
    ],
    ids=["one device", "every device", "without a selector none", "an effect that closes nothing"],
)
def test_a_rule_taints_what_it_selects(selector, effect, want):
    spec = {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}
    found = slices.to_taint_rule(read(slices.DeviceTaintRule, spec=spec))
    assert (None if found is None else found[:3]) == want


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_slice_has_the_sizes_of_devices_that_claims_may_share(version):
    spec = {
        "driver": GPU,
        "nodeName": "n0",
        "pool": {"name": "n0", "generation": 1},
        "devices": [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "?"}},
            },
            {"name": "gpu-1", "capacity": {"memory": {"value": "80Gi"}}},
            {"name": "gpu-2", "taints": [{"effect": "NoExecute"}]},
        ],
    }
    if version == "v1beta1":
        spec["devices"] = [{"name": each.pop("name"), "basic": each} for each in spec["devices"]]
    found = slices.to_slice(read(slices.ResourceSlice, spec=spec))
    assert [bool(device.taints) for device in found.devices] == [False, False, True]
    assert found.sized == (SizedDevice("gpu-0", (("memory", Fraction(80 * 2**30)),)),)
