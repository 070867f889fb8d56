"""The benchmark in upstream's harness: what its pods are, what it hands over, and how it reads the result."""

import json

import pytest

from benchmarks.node_encodings import BURST, ENCODINGS
from benchmarks.scheduler_perf import CASES, SCHEDULERS, Reading, harness_case, patched, read, row, samples_seconds
from webhook.kube.objects.keys import TIER

HOSTNAME = "kubernetes.io/hostname"


def nodes_of(pod):
    """The nodes that a pod's required terms or its selector name, in their order."""
    if selector := pod["spec"].get("nodeSelector"):
        return [selector[HOSTNAME]]
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [
        name
        for term in required["nodeSelectorTerms"]
        for field in (*term.get("matchFields", ()), *term.get("matchExpressions", ()))
        for name in field["values"]
    ]


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
    assert ENCODINGS["stock"].mode is None
    assert patched(made, None, tmp_path) is made.pods


@pytest.mark.parametrize("encoding", ["hostname", "selector"])
def test_the_same_node_is_named_by_its_label(encoding, tmp_path):
    stored = patched(CASES["gpus"](8, 8), "require", tmp_path)
    encoded = ENCODINGS[encoding].encode(stored)
    assert [nodes_of(pod) for pod in encoded] == [nodes_of(pod) for pod in stored]
    assert all("metadata.name" not in json.dumps(pod["spec"]) for pod in encoded)
    assert [pod["metadata"] for pod in encoded] == [pod["metadata"] for pod in stored]


def test_pods_of_a_burst_all_name_the_nodes_that_hold_it(tmp_path):
    stored = patched(CASES["gpus"](10, 3 * BURST), "require", tmp_path)
    encoded = ENCODINGS["burst"].encode(stored)
    bursts = [[nodes_of(pod) for pod in encoded[first : first + BURST]] for first in range(0, len(encoded), BURST)]
    assert all(nodes == burst[0] for burst in bursts for nodes in burst)
    assert [len(burst[0]) for burst in bursts] == [2, 2, 4], "16 pods of 1, 1 and 2 GPUs fill nodes of 8"
    assert len({node for burst in bursts for node in burst[0]}) == 8


def test_the_harness_gets_every_object_written_out(tmp_path):
    made = CASES["gpus"](3, 2)
    written = harness_case(made, made.pods, SCHEDULERS["batched"], tmp_path)
    nodes, pods = written["workloadTemplate"]
    assert [json.loads(text) for text in nodes["templateParams"]["objects"]] == made.nodes
    assert [json.loads(text) for text in pods["templateParams"]["objects"]] == made.pods
    assert (nodes["count"], pods["count"], pods["collectMetrics"]) == (3, 2, True)
    assert (pods["signatureBatchSize"], written["featureGates"]) == (BURST, {"OpportunisticBatching": True})
    stock = harness_case(made, made.pods, SCHEDULERS["default"], tmp_path)
    assert "schedulerConfigPath" not in stock
    assert (stock["workloadTemplate"][1]["signatureBatchSize"], stock["featureGates"]) == (1, {})


def item(metric, average, **labels):
    """A row of the harness's result; its durations have no average."""
    data = {"Duration": 9.0} if average is None else {"Average": average}
    return {"data": data, "labels": {"Metric": metric, **labels}}


def test_what_the_harness_measured_is_read():
    items = [
        item("SchedulingThroughput", 181.5),
        item("scheduler_scheduling_algorithm_duration_seconds", 3.5),
        item("SchedulingDuration", None),
    ]
    assert read(items) == [181.5, 3.5]


@pytest.mark.parametrize(
    ("words", "want"), [("1.84s, 19.7% of 9.34s total", 1.84), ("40ms, 1% of 4s total", 0.04), ("0, 0% of 0 total", 0)]
)
def test_seconds_of_a_profile_are_those_of_the_functions_in_focus(words, want):
    assert samples_seconds(f"Type: cpu\nShowing nodes accounting for {words}\n") == pytest.approx(want)


def test_a_profile_without_a_sum_is_an_error():
    with pytest.raises(SystemExit, match="no sum"):
        samples_seconds("main.go: file not found")


def test_a_row_has_the_median_its_range_and_the_ratio_to_stock_with_the_same_scheduler():
    def readings(*rates):
        return [Reading(rate, choice_ms=2.0, scheduler_cpu=0.5, cpu=4) for rate in rates]

    measured = {("stock", "default"): readings(90, 100, 130), ("auto", "default"): readings(250, 310, 240)}
    want = "| gpus | auto, default | 250 (240 to 310) | 2.50 | 2.00 | 0.50 | 4.00 |"
    assert row("gpus", ("auto", "default"), measured) == want
