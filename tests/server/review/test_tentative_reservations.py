"""Concurrent pods: tentative reservations place them on different nodes, and cause no refusal."""

import asyncio
import json
from base64 import b64decode

import pytest

from tests.cases.test_cases import open_gate, pod, review

CASE = {
    "policy": {
        "teams": [{"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 20}}],
        "pools": [{"name": "all", "nodeSelector": {"pool": "all"}}],
    },
    "nodes": {name: {"allocatable": {"nvidia.com/gpu": "8"}, "labels": {"pool": "all"}} for name in ("n0", "n1")},
}


@pytest.fixture
def gate(tmp_path):
    return open_gate(CASE, tmp_path, clock=lambda: 100.0)


def advised(gate, name, *, dry_run=False, **metadata):
    """The nodes that a pod of eight GPUs is sent to."""
    return decided(gate, name, dry_run=dry_run, **metadata)["nodes"]


def decided(gate, name, *, dry_run=False, **metadata):
    step = {"gpus": 8, "metadata": {"name": name, "namespace": "team-a", **metadata}}
    asked = json.loads(review(pod(step), uid=f"uid-{name}", requester="alice"))
    asked["request"]["dryRun"] = dry_run
    answer = asyncio.run(gate.mutate(json.dumps(asked).encode(), deadline=1.0))
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    changes = {change["path"]: change["value"] for change in json.loads(b64decode(response["patch"]))}
    annotations = changes.get("/metadata/annotations") or {"d": changes["/metadata/annotations/fairgate.dev~1decision"]}
    return json.loads(next(iter(annotations.values())))


def test_the_next_pod_is_placed_elsewhere_before_the_first_is_committed(gate):
    assert advised(gate, "first")[0] == "n0"
    assert advised(gate, "second") == ["n1"]


def test_a_dry_run_reserves_nothing(gate):
    assert advised(gate, "first", dry_run=True)[0] == "n0"
    assert advised(gate, "second")[0] == "n0"


def test_tentative_reservations_cause_no_refusal(gate):
    advised(gate, "first")
    advised(gate, "second")
    assert advised(gate, "third", annotations={"fairgate.dev/pool": "all"})[0] == "n0"


def test_a_pod_that_is_refused_at_the_commit_reserves_nothing(gate):
    decision = decided(gate, "first") | {"policy": "another"}
    labels = {"fairgate.dev/team": "a", "fairgate.dev/tier": "guaranteed"}
    marked = {"annotations": {"fairgate.dev/decision": json.dumps(decision)}, "labels": labels}
    step = {"gpus": 8, "metadata": {"name": "first", "namespace": "team-a", **marked}}
    answer = asyncio.run(gate.validate(review(pod(step), uid="uid-first", requester="alice"), deadline=1e9))
    assert json.loads(answer.body)["response"]["status"]["code"] == 429
    assert advised(gate, "second")[0] == "n0"
