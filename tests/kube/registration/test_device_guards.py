"""Guards of devices: their patterns and what they take from the policy. Scenarios run them on a real API server."""

import json
import re

import pytest

from webhook.core.model.policy import Defaults, Policy
from webhook.kube.registration.guards import DEVICES, SOURCES, VOLUMES, guards


def device_guards(policy):
    made = {each["metadata"]["name"]: each["spec"] for each in guards(policy)[::2]}
    return made[DEVICES], made[SOURCES], made[VOLUMES]


PODS, KEYS, PATHS = device_guards(Policy())


def pattern_after(call, text):
    """The pattern that an expression gives to `matches`, as Python reads it; RE2 searches, too."""
    found = re.search(re.escape(call) + r'\.matches\(("(?:[^"\\]|\\.)*")\)', text)
    return re.compile(json.loads(found[1]))


def expressions(spec):
    return " ".join(each["expression"] for each in spec["validations"])


def test_what_a_container_may_lack_is_read_only_where_it_is_there():
    """CEL fails on a field that is absent, and so would the request."""
    text = json.dumps(PODS["validations"] + PODS["variables"])
    read = {tuple(path.split(".")) for path in re.findall(r"\b(c(?:\.\w+)+)\.(?:size|exists)\(", text)}
    assert len(read) > 3
    parents = {".".join(path[:end]) for path in read for end in range(2, len(path) + 1)}
    assert {each for each in parents if f"has({each})" not in text} == set()


@pytest.mark.parametrize("spec", [PODS, KEYS, PATHS])
def test_every_message_ends_with_the_code(spec):
    assert all(each["message"].endswith("(UncountedDevice)") for each in spec["validations"])


def test_host_paths_and_exempt_namespaces_are_the_policys():
    policy = Policy(defaults=Defaults(host_paths=("/data",)), exempt_namespaces=("monitoring",))
    pods, keys, _ = device_guards(policy)
    assert {"name": "hostPaths", "expression": '["/data"]'} in pods["variables"]
    for spec in (pods, keys):
        [requirement] = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert "monitoring" in requirement["values"]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/data", True),
        ("/data/", True),
        ("/data/.hidden/..x/a.b", True),
        ("/", False),
        ("data", False),
        ("/data/../dev", False),
        ("/data/./x", False),
        ("/data//x", False),
        ("/data/..", False),
    ],
)
def test_paths_of_volumes_must_be_canonical(path, want):
    pattern = re.compile(json.loads(re.search(r'!p\.matches\(("(?:[^"\\]|\\.)*")\)', expressions(PATHS))[1]))
    assert bool(pattern.search(path)) is want


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/proc", True),
        ("/sys/bus/pci", True),
        ("/run/udev", True),
        ("/var/run/x", True),
        ("/dev", True),
        ("/dev/", True),
        ("/dev/nvidia0", True),
        ("/dev/dri/card0", True),
        ("/dev/sdb", False),
        ("/devices", False),
        ("/var/lib/data", False),
        ("/srv/dev/nvidia0", False),
    ],
)
def test_paths_that_give_access_to_devices_are_refused(path, want):
    found = re.findall(r'p\.matches\(("(?:[^"\\]|\\.)*")\)', expressions(PATHS))
    assert bool(re.search(json.loads(found[1]), path)) is want


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("cdi.k8s.io/gpu", True),
        ("nvidia.cdi.k8s.io/container.train", True),
        ("devices.nri.io/container.train", True),
        ("io.kubernetes.cri-o.Devices", True),
        ("hami.io/vgpu-devices-allocated", True),
        ("volcano.sh/gpu-index", True),
        ("ALIYUN_COM_GPU_MEM_IDX", True),
        ("volcano.sh/queue-name", False),
        ("hami.io/resource-pool", False),
        ("example.com/devices", False),
        ("fairgate.dev/pool", False),
    ],
)
def test_annotations_that_name_devices(key, want):
    [found] = [each["expression"] for each in PODS["validations"] if "an annotation names" in each["message"]]
    assert bool(pattern_after("k", found).search(key)) is want


@pytest.mark.parametrize(
    ("name", "want"),
    [("nvidia", True), ("NVIDIA-legacy", True), ("kata-gpu", True), ("runc", False), ("gvisor", False)],
)
def test_runtime_classes_that_give_devices(name, want):
    assert bool(pattern_after("runtimeClassName", expressions(PODS)).search(name)) is want
