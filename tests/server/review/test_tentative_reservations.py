"""Concurrent pods: tentative reservations place them on different nodes, and cause no refusal."""

import asyncio
import json
from base64 import b64decode

import pytest

from tests.builders import decision_of
from tests.cases.test_cases import open_reviewer, pod, review

CASE = {
    "policy": {
        "teams": [{"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 20}}],
        "pools": [{"name": "all", "nodeSelector": {"pool": "all"}}],
    },
    "nodes": {name: {"allocatable": {"nvidia.com/gpu": "8"}, "labels": {"pool": "all"}} for name in ("n0", "n1")},
}


@pytest.fixture
def reviewer(tmp_path):
    return open_reviewer(CASE, tmp_path, unix_time=lambda: 100.0)


def advised(reviewer, name, *, dry_run=False, **metadata):
    """The nodes that a pod of eight GPUs is sent to."""
    return decided(reviewer, name, dry_run=dry_run, **metadata)["nodes"]


def decided(reviewer, name, *, dry_run=False, **metadata):
    step = {"gpus": 8, "metadata": {"name": name, "namespace": "team-a", **metadata}}
    asked = json.loads(review(pod(step), uid=f"uid-{name}", requester="alice"))
    asked["request"]["dryRun"] = dry_run
    answer = reviewer.mutate(json.dumps(asked).encode())
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    changes = {change["path"]: change["value"] for change in json.loads(b64decode(response["patch"]))}
    annotations = changes.get("/metadata/annotations") or {"d": changes["/metadata/annotations/fairgate.dev~1decision"]}
    metadata = {"annotations": {"fairgate.dev/decision": next(iter(annotations.values()))}}
    return decision_of({"metadata": metadata, "spec": {"affinity": changes.get("/spec/affinity")}})


def test_the_next_pod_is_placed_elsewhere_before_the_first_is_committed(reviewer):
    assert advised(reviewer, "first")[0] == "n0"
    assert advised(reviewer, "second") == ["n1"]


def test_a_dry_run_reserves_nothing(reviewer):
    assert advised(reviewer, "first", dry_run=True)[0] == "n0"
    assert advised(reviewer, "second")[0] == "n0"


def test_tentative_reservations_cause_no_refusal(reviewer):
    advised(reviewer, "first")
    advised(reviewer, "second")
    assert advised(reviewer, "third", annotations={"fairgate.dev/pool": "all"})[0] == "n0"


def test_tentative_reservations_put_no_pod_in_line(tmp_path):
    policy = CASE["policy"] | {"defaults": {"onNoRoom": "queue"}}
    asked = open_reviewer(CASE | {"policy": policy}, tmp_path, unix_time=lambda: 100.0)
    for name in ("first", "second", "third"):
        assert decided(asked, name)["mode"] != "queue"


def test_a_pod_that_is_refused_at_the_commit_reserves_nothing(reviewer):
    decision = decided(reviewer, "first") | {"policy": "another"}
    labels = {"fairgate.dev/team": "a", "fairgate.dev/tier": "guaranteed"}
    marked = {"annotations": {"fairgate.dev/decision": json.dumps(decision)}, "labels": labels}
    step = {"gpus": 8, "metadata": {"name": "first", "namespace": "team-a", **marked}}
    answer = asyncio.run(reviewer.validate(review(pod(step), uid="uid-first", requester="alice"), deadline=1e9))
    assert json.loads(answer.body)["response"]["status"]["code"] == 429
    assert advised(reviewer, "second")[0] == "n0"
