"""Shared by the fuzz tests: a policy with many sections, a world with pools and taints, and checks of every answer."""

import base64
import copy
import json

import jsonpatch
from hypothesis import strategies as st

from tests.blackbox.objects import GPU, node

A100, T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
POLICY = {
    "teams": [
        {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 6, "limit": 12}, "perPod": {"limit": 8}},
        {
            "name": "b",
            "namespaces": ["team-b"],
            "gpus": {"guaranteed": 10, "limit": 20},
            "models": {A100: {"guaranteed": 4, "limit": 8}},
            "perUser": {"limit": 9},
        },
    ],
    "pools": [
        {
            "name": "a100",
            "nodeSelector": {"gpu": "a100"},
            "affinity": [{"key": "memory", "operator": "Gt", "values": ["30000"]}],
            "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
            "capabilities": ["nvlink"],
        },
        {"name": "t4", "nodeSelector": {"gpu": "t4"}, "teams": ["a", "b"]},
        {"name": "ours", "match": {"podSelector": {"matchLabels": {"app": "kafka"}}}},
    ],
    "placement": {"keepWhole": {"nodes": 1}},
    "exempt": {"namespaces": ["kube-system"]},
}
LIMITS = {"a": 12, "b": 20}
UNIT = 840_000


def labeled(name, model, taints=(), **labels):
    manifest = node(name)
    manifest["metadata"]["labels"] |= labels | ({"nvidia.com/gpu.product": model} if model else {})
    manifest["spec"]["taints"] = list(taints)
    return manifest


TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
NODES = [
    labeled("n0", A100, [TAINT], gpu="a100", memory="80000"),
    labeled("n1", A100, [TAINT], gpu="a100", memory="40000"),
    labeled("n2", T4, gpu="t4", memory="16000"),
    labeled("n3", T4, gpu="t4", memory="16000", zone="x"),
    labeled("n4", "", gpu="t4", memory="16000"),
]


def assert_answer(answer, uid):
    """An AdmissionReview v1 with the same uid."""
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert response["uid"] == uid
    if not response["allowed"]:
        assert response["status"]["code"] in (403, 429)
        assert response["status"]["message"]
        assert "patch" not in response
    assert all(0 < len(text) <= 120 and "\n" not in text for text in response.get("warnings", ()))
    return response


def patched(request, response):
    patch = json.loads(base64.b64decode(response["patch"]))
    changed = copy.deepcopy(request)
    changed["request"]["object"] = jsonpatch.apply_patch(request["request"]["object"], patch)
    return changed


def rarely(*values):
    """One of these, the last one with a probability of four fifths."""
    return st.sampled_from([*values, *[values[-1]] * 4])
