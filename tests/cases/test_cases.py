"""Whole decisions as data: a policy, a world and pods one after another, each with what must come of it.

A case goes bytes to bytes: /mutate, the patch applied by jsonpatch, /mutate again (which must change nothing), then
/validate. `want` names what matters: outcome (admit, deny, retry, skip), code, tier, nodes, pool, text (parts of the
refusal), warnings (parts), and spec (parts of the patched pod's spec). Nodes have 10 GPUs, 64 CPUs and 512Gi unless
said otherwise.
"""

import base64
import itertools
import json
from pathlib import Path

import jsonpatch
import pytest

from tests import builders
from tests.blackbox import in_process
from tests.builders import decision_of
from tests.cases.samples import read_yaml
from webhook.core.world.world import World
from webhook.kube.world_file.world_file import add_objects
from webhook.policy.watch import load
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

CASES = sorted((Path(__file__).parent / "decisions").glob("*.yaml"))
NODE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "10", "pods": "110"}


def node(name, given):
    status = {"allocatable": NODE | given.get("allocatable", {}), "conditions": [{"type": "Ready", "status": "True"}]}
    if "capacity" in given:
        status["capacity"] = NODE | given["capacity"]
    labels = {"kubernetes.io/hostname": name} | given.get("labels", {})
    spec = {key: given[key] for key in ("taints", "unschedulable") if key in given}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def pod(given):
    metadata = {"namespace": "team-a", "name": "p"} | given.get("metadata", {})
    resources = {"requests": {"cpu": "1", "memory": "8Gi"}, "limits": {"nvidia.com/gpu": str(given.get("gpus", 1))}}
    containers = [{"name": "main", "image": "train:1", "resources": given.get("resources", resources)}]
    spec = {"containers": containers} | given.get("spec", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec} | (
        {"status": given["status"]} if "status" in given else {}
    )


def review(manifest, *, uid, requester, operation="CREATE"):
    where = manifest["metadata"]["namespace"]
    return builders.review(manifest, uid=uid, operation=operation, namespace=where, username=requester, groups=())


def open_reviewer(case, folder, **more):
    head = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy"}
    (folder / "policy.yaml").write_text(json.dumps(head | case["policy"]))
    world = World(load(folder))
    objects = [node(name, given or {}) for name, given in case["nodes"].items()]
    objects += [pod(given) for given in case.get("running", [])] + case.get("objects", [])
    add_objects(world, objects, name="case")
    ledger = MemoryLedger(world, lambda: 0.0)
    return AdmissionReviewer(world, ledger, now_text=lambda: "2026-01-01T00:00:00Z", **more)


def ask(reviewer, step, uid):
    """Take a pod through both webhooks; gives the record, the response and the pod as it ended."""
    manifest = pod(step)
    requester = step.get("requester", "alice")

    def call(method, body):
        answer = in_process.ask(reviewer, method, body)
        return answer.record, json.loads(answer.body)["response"]

    record, response = call("mutate", review(manifest, uid=uid, requester=requester))
    if not response["allowed"]:
        return record, response, manifest
    warnings = response.get("warnings", [])
    if "patch" in response:
        manifest = jsonpatch.apply_patch(manifest, json.loads(base64.b64decode(response["patch"])))
        _, again = call("mutate", review(manifest, uid=uid, requester=requester))
        assert again["allowed"]
        assert "patch" not in again, "patching twice must change nothing"
    manifest["metadata"]["uid"] = uid
    record, response = call("validate", review(manifest, uid=uid, requester=requester))
    return record, response | {"warnings": warnings + response.get("warnings", [])}, manifest


def assert_part(want, got, path):
    """Hold what is wanted against what came; mappings may have more, lists must be equal in length."""
    if isinstance(want, dict):
        assert isinstance(got, dict), path
        for key, value in want.items():
            assert key in got, f"{path}.{key} is missing"
            assert_part(value, got[key], f"{path}.{key}")
    elif isinstance(want, list):
        assert len(got) == len(want), f"{path}: {got}"
        for i, (one, other) in enumerate(zip(want, got, strict=True)):
            assert_part(one, other, f"{path}[{i}]")
    else:
        assert got == want, path


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, tmp_path):
    case = read_yaml(path)
    reviewer = open_reviewer(case, tmp_path)
    numbers = itertools.count(1)
    for step in case["pods"]:
        for _ in range(step.get("times", 1)):
            number = next(numbers)
            named = step | {"metadata": {"name": f"p{number}"} | step.get("metadata", {})}
            record, response, manifest = ask(reviewer, named, f"uid-{number}")
            want, where = step["want"], f"pod {number}"
            assert record.outcome == want["outcome"], f"{where}: {record.message}"
            for key in ("code", "tier", "team"):
                assert key not in want or getattr(record, key) == want[key], f"{where}: {record}"
            is_decided = "fairgate.dev/decision" in manifest["metadata"].get("annotations", {})
            decided = decision_of(manifest) if is_decided else {}
            assert "pool" not in want or decided.get("pool") == want["pool"], where
            assert "nodes" not in want or decided.get("nodes") == want["nodes"], f"{where}: {decided}"
            for part in want.get("text", []):
                assert part in response["status"]["message"], where
            if "warnings" in want:
                assert len(want["warnings"]) == len(response["warnings"]), f"{where}: {response['warnings']}"
                for part, warning in zip(want["warnings"], response["warnings"], strict=True):
                    assert part in warning, where
            assert_part(want.get("spec", {}), manifest["spec"], f"{where}: spec")
