"""Nodes, namespaces and priority classes as core values."""

import json

import msgspec
import pytest

from tests import builders as b
from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.pod import NamespaceFacts, PriorityTriple
from webhook.kube.nodes.nodes import to_namespace, to_node, to_priority
from webhook.kube.objects import keys, objects


def translated(manifest):
    return to_node(msgspec.json.decode(json.dumps(manifest), type=objects.Node))


def test_allocatable_is_read_as_exact_integers():
    node = translated(b.node(gpus=10, model=b.A100))
    assert node.name == "node-1"
    assert node.allocatable == {"cpu": 64_000, "memory": 512 * 2**30, "pods": 110, b.GPU: 10}
    assert (node.model, node.model_label) == (b.A100, "nvidia.com/gpu.product")
    assert node.labels["kubernetes.io/hostname"] == "node-1"
    assert node.is_open


def test_the_builders_of_both_worlds_agree():
    assert translated(b.node(model=b.A100)) == b.core_node(model=b.A100)


def test_capacity_is_used_if_allocatable_is_missing():
    manifest = b.node()
    manifest["status"] = {"capacity": {"cpu": "8", b.GPU: "4"}}
    assert translated(manifest).allocatable == {"cpu": 8000, b.GPU: 4}


@pytest.mark.parametrize("label", keys.GPU_MODEL_LABELS)
def test_every_known_label_names_the_model(label):
    node = translated(b.node(labels={label: "M1"}))
    assert (node.model, node.model_label) == ("M1", label)


def test_device_discovery_takes_precedence_over_the_cloud_label():
    node = translated(b.node(model=b.A100, labels={"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}))
    assert node.model == b.A100


def test_a_node_without_a_model_label_has_no_model():
    assert (translated(b.node()).model, translated(b.node()).model_label) == ("", "")


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}], True),
        ([], True),
        (None, True),
    ],
)
def test_readiness_is_the_ready_condition(conditions, want):
    manifest = b.node()
    manifest["status"]["conditions"] = conditions
    assert translated(manifest).is_ready is want


def test_taints_and_cordon_are_both_read():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": b.GPU, "value": "present", "effect": "NoExecute"},
        {"key": "future", "effect": "NoBreakfast"},
    ]
    node = translated(b.node(taints=taints, is_cordoned=True))
    assert node.taints == (
        Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE),
        Taint(b.GPU, Effect.NO_EXECUTE, "present"),
    )
    assert node.is_cordoned
    assert not node.is_open


def test_a_negative_allocatable_counts_as_zero():
    manifest = b.node()
    manifest["status"]["allocatable"]["memory"] = "-1Gi"
    assert translated(manifest).allocatable["memory"] == 0


def test_a_malformed_amount_is_an_error_with_its_path():
    manifest = b.node()
    manifest["status"]["allocatable"]["cpu"] = "lots"
    with pytest.raises(ValueError, match=r"status\.allocatable\.cpu: 'lots' is not a quantity"):
        translated(manifest)


def test_a_node_with_only_a_name_has_no_allocatable():
    assert translated({"metadata": {"name": "bare"}}).allocatable == {}


def test_labels_and_annotations_of_a_namespace_are_read():
    body = json.dumps({"metadata": {"name": "vision", "labels": {"a": "b"}, "annotations": {"owner": "alice"}}})
    found = to_namespace(msgspec.json.decode(body, type=objects.Namespace))
    assert found == NamespaceFacts("vision", {"a": "b"}, {"owner": "alice"})


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"value": 7}, PriorityTriple("high", 7)),
        ({"value": 7, "preemptionPolicy": "Never"}, PriorityTriple("high", 7, "Never")),
    ],
)
def test_priority_classes_become_triples(given, want):
    body = json.dumps({"metadata": {"name": "high"}, **given})
    assert to_priority(msgspec.json.decode(body, type=objects.PriorityClass)) == want


@pytest.mark.parametrize(
    ("offered", "labels", "want"),
    [
        ({"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}, {}, (16, 16)),
        ({"aliyun.com/gpu-mem": "31", "aliyun.com/gpu-count": "2"}, {"nvidia.com/gpu.count": "4"}, (15, 15)),
        ({"aliyun.com/gpu-mem": "32"}, {"nvidia.com/gpu.count": "4"}, (8, 8, 8, 8)),
        ({"aliyun.com/gpu-mem": "32"}, {"aliyun.accelerator/nvidia_count": "2"}, (16, 16)),
        ({"aliyun.com/gpu-mem": "32"}, {"nvidia.com/gpu.count": "many"}, (32,)),
        ({"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "1000000000000"}, {}, (32,)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.count": "8"}, ()),
    ],
)
def test_shared_devices_are_read_one_by_one(offered, labels, want):
    manifest = b.node(labels=labels)
    manifest["status"]["allocatable"] = offered
    assert translated(manifest).devices.capacities == want


@pytest.mark.parametrize(
    ("capacity", "allocatable", "want"),
    [
        ({b.GPU: "8"}, {b.GPU: "8"}, {}),
        ({b.GPU: "8"}, {b.GPU: "0"}, {b.GPU: 8}),
        ({b.GPU: "8"}, {b.GPU: "7"}, {b.GPU: 8}),
        ({b.GPU: "8"}, {}, {b.GPU: 8}),
        ({b.GPU: "0"}, {b.GPU: "0"}, {}),
        ({"cpu": "64", "memory": "512Gi"}, {"cpu": "62", "memory": "500Gi"}, {}),
        ({b.GPU: "8"}, None, {}),
    ],
    ids=["as it is", "plugin restarts", "one is unhealthy", "not offered yet", "plugin is gone", "reserved", "default"],
)
def test_what_a_node_has_at_its_best_is_in_its_capacity(capacity, allocatable, want):
    manifest = b.node()
    manifest["status"] |= {"capacity": capacity, "allocatable": allocatable}
    assert translated(manifest).at_best == want


def test_shared_devices_at_their_best_are_in_the_capacity():
    manifest = b.node(labels={"nvidia.com/gpu.count": "2"})
    manifest["status"] |= {"capacity": {"aliyun.com/gpu-mem": "32"}, "allocatable": {"aliyun.com/gpu-mem": "0"}}
    found = translated(manifest)
    assert (found.devices.capacities, found.devices_at_best.capacities) == ((), (16, 16))
