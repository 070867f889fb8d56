"""The benchmark in upstream's harness: what its pods are, what it hands over, and how it reads the result."""

import json

import pytest

from benchmarks.scheduler_perf import CASES, Reading, harness_case, patched, read
from webhook.kube.objects.keys import TIER


def nodes_of(pod):
    """The nodes that a pod's required terms name, in their order."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [field["values"][0] for term in required["nodeSelectorTerms"] for field in term["matchFields"]]


@pytest.mark.parametrize("case", CASES)
def test_pods_are_patched_one_after_the_other_as_the_webhook_does(case, tmp_path):
    made = CASES[case](10, 10)
    stored = patched(made, "require", tmp_path)
    assert [pod["metadata"]["name"] for pod in stored] == [pod["metadata"]["name"] for pod in made.pods]
    assert {pod["metadata"]["labels"][TIER] for pod in stored} == {"guaranteed"}
    free = {node["metadata"]["name"]: dict(node["status"]["allocatable"]) for node in made.nodes}
    for pod in stored:
        (name,) = nodes_of(pod)
        for resource, asked in pod["spec"]["containers"][0]["resources"]["limits"].items():
            free[name][resource] = int(free[name][resource]) - int(asked)
            assert free[name][resource] >= 0


def test_stock_pods_have_no_patch(tmp_path):
    made = CASES["gpus"](4, 4)
    assert patched(made, None, tmp_path) is made.pods


def test_the_harness_gets_every_object_written_out(tmp_path):
    made = CASES["gpus"](3, 2)
    written = harness_case(made, made.pods, tmp_path, can_batch=True)
    nodes, pods = written["workloadTemplate"]
    assert [json.loads(text) for text in nodes["templateParams"]["nodes"]] == made.nodes
    assert [json.loads(text) for text in pods["templateParams"]["pods"]] == made.pods
    assert (nodes["count"], pods["count"], pods["collectMetrics"]) == (3, 2, True)
    assert "schedulerConfigPath" not in harness_case(made, made.pods, tmp_path, can_batch=False)


def test_attempts_without_success_are_not_the_ones_that_are_read():
    def item(metric, average, **labels):
        return {"data": {"Average": average}, "labels": {"Metric": metric, **labels}}

    attempt = "scheduler_scheduling_attempt_duration_seconds"
    items = [
        item("SchedulingThroughput", 181.5),
        item(attempt, 4.5, result="scheduled"),
        item(attempt, 9.0, result="unschedulable"),
    ]
    assert read(items) == Reading(per_second=181.5, attempt_ms=4.5)
