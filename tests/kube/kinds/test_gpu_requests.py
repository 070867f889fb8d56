"""Where unknown objects ask for GPUs; real manifests in tests/cases/unknown_kinds show both sides of the rule."""

import pytest

from webhook.kube.kinds.gpu_requests import amounts_in, asking_annotation, requests_in
from webhook.kube.kinds.model import Budget, BudgetSpentError


def where(spec):
    return requests_in({"apiVersion": "example.com/v1", "kind": "Run", "spec": spec}, Budget()).devices


@pytest.mark.parametrize(
    "spec",
    [
        {"gpus": 0},
        {"gpus": [], "gpuTypes": [""]},
        {"gpu": {"enabled": True, "name": "auto"}},
        {"gpuMemoryUtilization": 0.9},
        {"labels": {"gpu": "8"}, "selector": {"gpus": 8}},
        {"resources": {"limits": {"cpu": 8}, "requests": {"nvidia.com/gpu": "0"}}},
        {"name": "gpu", "value": "1", "instance": "p4d.24xlarge"},
        {"nodeType": "m5.large", "machineType": "n2-standard-8"},
        {"text": "set nvidia.com/gpu as you like; example.com/cards: 8"},
    ],
)
def test_what_only_mentions_gpus_asks_for_none(spec):
    assert where({key: value for key, value in spec.items() if key != "name"}) == ""


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"gpus": [{"type": "x", "count": 2}]}, "spec.gpus[0].count"),
        ({"gpuTypes": ["A100"]}, "spec.gpuTypes[0]"),
        ({"num_gpus": 0.5}, "spec.num_gpus"),
        ({"resources": {"requests": {"vendor.example/card": 1}}}, "spec.resources"),
        ({"resources": {"claims": [{"name": "g"}]}}, "spec.resources"),
        ({"args": ["kubectl apply -f - <<E\n nvidia.com/gpu: 8"]}, "spec.args[0]"),
        ({"instance_types": ["g5.xlarge"]}, "spec.instance_types[0]"),
        ({"vmSize": "Standard_ND96asr_v4"}, "spec.vmSize"),
    ],
)
def test_a_field_that_asks_is_named(spec, want):
    assert where(spec) == want


def test_the_first_containers_are_named_too():
    found = requests_in({"spec": {"a": {"containers": []}, "b": {"container": {"image": "x"}}}}, Budget())
    assert found == ("", "spec.a.containers")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nvidia.com/gpu: 8", True),
        ('"amd.com/gpu": "1"', True),
        ("nvidia.com/gpu: {{inputs.parameters.n}}", True),
        ("nvidia.com/gpu=2", True),
        ("nvidia.com/gpu: 0", False),
        ("key: nvidia.com/gpu", False),
        ("example.com/card: 8", False),
    ],
)
def test_a_text_that_is_a_manifest_gives_amounts(text, want):
    assert amounts_in(text, Budget()) is want


@pytest.mark.parametrize("text", ["a." * 500_000, "a/" * 500_000, "nvidia.com/" + "x" * 1_000_000, "{{" * 500_000])
def test_a_long_text_takes_steps_by_its_length(text):
    budget = Budget()
    before = budget.steps_left
    amounts_in(text, budget)
    assert before - budget.steps_left == 1 + len(text) // 32


def test_an_object_of_many_values_is_too_large():
    with pytest.raises(BudgetSpentError):
        where({"a": [{"b": 1}] * 200_000})


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({"a": "b", "gpu-fraction": "0.5"}, "gpu-fraction"),
        ({"gpu-memory": "2000"}, "gpu-memory"),
        ({"nvidia.com/container.main.gpu-memory.request": "10Gi"}, "nvidia.com/container.main.gpu-memory.request"),
        ({"gpu-fraction": "0", "gpu-utilization-threshold": "50", "nvidia.com/use-gputype": "A100"}, ""),
        ({"nvidia.com/pod-index": "3", "team": "gpu"}, ""),
        ({"gpu-note": "9" * 100_000}, ""),
    ],
)
def test_an_annotation_asks_for_gpus_by_an_amount(annotations, want):
    assert asking_annotation(annotations) == want
