"""Pods under admission as core values."""

import json

import pytest

from tests import builders as b
from tests.kube.support.created import pod_of, problems, resident, resources, struct, with_resources
from webhook.core.model.demand import ClaimRef, PerDevice
from webhook.core.model.pod import Handling, Owner
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.pod.pods import to_pod

WRONG = {
    "requests and limits differ": (
        with_resources({b.GPU: 1}, {b.GPU: 2}),
        "container train: nvidia.com/gpu request 1 and limit 2 differ; GPUs cannot be overcommitted: "
        "set both to the same number",
    ),
    "no limit": (
        with_resources({b.GPU: "2"}),
        "container train: nvidia.com/gpu request 2 has no limit; GPUs cannot be overcommitted: "
        "set the limit to the same number",
    ),
    "a fraction": (
        with_resources({b.GPU: "0.5"}, {b.GPU: "0.5"}),
        "container train: nvidia.com/gpu is 0.5; GPUs are counted in whole numbers: request 1, "
        "or a resource that is a share of a GPU, if the cluster offers one",
    ),
    "thousandths": (
        with_resources(None, {b.GPU: "500m"}),
        "container train: nvidia.com/gpu is 500m; GPUs are counted in whole numbers: request 1, "
        "or a resource that is a share of a GPU, if the cluster offers one",
    ),
    "negative": (
        with_resources(None, {b.GPU: -1}),
        "container train: nvidia.com/gpu is -1; an amount cannot be negative: request 0 or more",
    ),
    "huge": (
        with_resources(None, {b.GPU: "1000001"}),
        "container train: nvidia.com/gpu is 1000001, more than the maximum of 1000000 per container; check the number",
    ),
    "pod level": (
        with_resources(None, {b.GPU: 1}, resources=resources(None, {b.GPU: 1})),
        "pod resources: nvidia.com/gpu cannot be set for the whole pod; set it on the container that uses it",
    ),
    "in an init container": (
        b.pod(initContainers=[{"name": "warm-up", "resources": resources({b.GPU: 1})}]),
        "init container warm-up: nvidia.com/gpu request 1 has no limit; GPUs cannot be overcommitted: "
        "set the limit to the same number",
    ),
}


@pytest.mark.parametrize(("manifest", "want"), WRONG.values(), ids=WRONG)
def test_gpu_amounts_that_kubernetes_would_refuse_are_reported(manifest, want):
    assert problems(manifest) == (want,)


UNREADABLE = {
    "not a number": (
        with_resources(None, {b.GPU: "many"}),
        "container train: nvidia.com/gpu: 'many' is not a quantity",
    ),
    "beyond all limits": (with_resources(None, {b.GPU: "1e25"}), "container train: nvidia.com/gpu: '1e25' is more"),
    "negative cpu": (with_resources({"cpu": "-1"}), "container train: cpu is -1; an amount cannot be negative"),
    "a quantity that is a boolean": (
        with_resources(None, {b.GPU: True}),
        "container train: resources.limits[]: expected int | float | str, got bool",
    ),
    "resources that are a list": (
        b.pod(containers=[{"name": "train", "resources": []}]),
        "container train: resources: expected object, got array",
    ),
    "overhead": (b.pod(overhead={"cpu": "x"}), "overhead: cpu: 'x' is not a quantity"),
    "affinity": (b.pod(affinity=[]), "spec.affinity: expected object, got array"),
    "an unknown operator": (
        b.pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]
                    }
                }
            }
        ),
        "operator: invalid enum value 'Like'",
    ),
    "node selector": (b.pod(nodeSelector={"a": 1}), "spec.nodeSelector[]: expected str, got int"),
    "tolerations": (b.pod(tolerations={}), "spec.tolerations: expected array, got object"),
}


@pytest.mark.parametrize(("manifest", "want"), UNREADABLE.values(), ids=UNREADABLE)
def test_malformed_fields_are_reported_with_their_path(manifest, want):
    assert any(want in problem for problem in problems(manifest)), problems(manifest)


def test_all_problems_are_reported_at_once():
    manifest = b.pod(
        containers=[
            {"name": "one", "resources": resources({b.GPU: 1})},
            {"name": "two", "resources": resources({b.GPU: 1}, {b.GPU: 2})},
            {"name": "three", "resources": resources({"cpu": "x"})},
        ],
        tolerations=7,
    )
    assert [problem.partition(":")[0] for problem in problems(manifest)] == [
        "container one",
        "container two",
        "container three",
        "spec.tolerations",
    ]


def test_equal_amounts_in_different_notations_are_equal():
    assert pod_of(with_resources({b.GPU: "2"}, {b.GPU: "2000m"})).demand.devices == ((b.GPU, 2),)


# --- how it is placed


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        (b.pod(), Handling.MANAGED),
        (b.pod(schedulerName="default-scheduler"), Handling.MANAGED),
        (b.pod(schedulerName="volcano"), Handling.FOREIGN_SCHEDULER),
        (b.pod(node="node-1"), Handling.NODE_NAME),
        (b.pod(controller=("DaemonSet", "dcgm")), Handling.DAEMON_SET),
        (b.pod(controller=("ReplicaSet", "web")), Handling.MANAGED),
        (b.pod(annotations={"kubernetes.io/config.mirror": "abc"}, node="node-1"), Handling.MIRROR),
    ],
    ids=["plain", "default scheduler", "foreign scheduler", "nodeName", "DaemonSet", "ReplicaSet", "mirror"],
)
def test_handling_by_scheduler_node_and_controller(manifest, want):
    assert pod_of(manifest).handling is want


def test_a_daemon_set_of_another_api_group_is_not_a_daemon_set():
    manifest = b.pod(controller=("DaemonSet", "x"))
    manifest["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    assert pod_of(manifest).handling is Handling.MANAGED


def test_the_name_of_an_owner_is_truncated():
    manifest = b.pod(controller=("K" * 1_000_000, "n" * 1_000_000))
    assert pod_of(manifest).owner == Owner("K" * 63, "n" * 253)


def test_only_the_controller_among_the_owners_counts():
    manifest = b.pod(controller=("Job", "train"))
    manifest["metadata"]["ownerReferences"].insert(
        0, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}
    )
    assert pod_of(manifest).owner == Owner("Job", "train")


# --- where it may go


def test_labels_and_annotations_of_fairgate_are_read():
    pod = pod_of(
        b.pod(
            labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"},
            annotations={
                "fairgate.dev/requires": " nvlink, model-on-gpu,,",
                "fairgate.dev/pool": "a100",
                "fairgate.dev/decision": "{}",
            },
            priorityClassName="high",
        )
    )
    assert (pod.team_label, pod.tier_label, pod.pool, pod.decision_annotation, pod.priority_class) == (
        "vision",
        "preemptible",
        "a100",
        "{}",
        "high",
    )
    assert pod.requires == {"nvlink", "model-on-gpu"}


def test_the_given_name_and_uid_are_used_only_if_the_pod_has_none():
    given = {"namespace": "vision", "weights": BUILT_IN_RESOURCES, "name": "stand-in", "uid": "u-0"}
    nameless = b.pod()
    nameless["metadata"] = {"generateName": "train-"}
    assert (to_pod(struct(nameless), **given).name, to_pod(struct(nameless), **given).uid) == ("stand-in", "u-0")
    own = to_pod(struct(b.pod(uid="u-1")), **given)
    assert (own.name, own.uid) == ("train-0", "u-1")


def test_claims_are_read_by_name_by_template_and_with_their_group():
    claims = [
        {"name": "own", "resourceClaimTemplateName": "two"},
        {"name": "shared", "resourceClaimName": "all-of-us"},
    ]
    manifest = b.pod(resourceClaims=claims, schedulingGroup={"podGroupName": "gang"})
    own, shared = ClaimRef(template="two", group="gang", entry="own"), ClaimRef(claim="all-of-us", entry="shared")
    assert pod_of(manifest).claims == (own, shared)
    manifest["status"] = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "train-0-own-x7"}]}
    assert resident(manifest).claims == (own._replace(claim="train-0-own-x7"), shared)
    assert pod_of(b.pod()).claims == ()
    alpha = b.pod(resourceClaims=[{"name": "own", "source": {"resourceClaimTemplateName": "two"}}])
    assert pod_of(alpha).claims == (ClaimRef(entry="own"),), "of Kubernetes 1.30: refused as unknown, never free"


@pytest.mark.parametrize(
    ("index", "want"), [("1", (1,)), ("0", (0,)), ("-1", ()), ("", ()), ("one", ()), ("99999999", ())]
)
def test_the_device_that_gpushare_chose_is_known(index, want):
    manifest = b.pod(node="node-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": index})
    assert resident(manifest).devices == want


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        ({"aliyun.com/gpu-mem": 3}, PerDevice("aliyun.com/gpu-mem", 3)),
        ({"aliyun.com/gpu-mem": 7, "aliyun.com/gpu-count": 2}, PerDevice("aliyun.com/gpu-mem", 4, 2)),
        ({b.GPU: 2}, None),
    ],
)
def test_shared_memory_is_requested_per_device(asked, want):
    assert pod_of(with_resources(None, asked)).demand.per_device == want


@pytest.mark.parametrize(
    ("kind", "spec", "want"),
    [
        ("ReplicaSet", {}, True),
        ("StatefulSet", {"topologySpreadConstraints": []}, True),
        (
            "ReplicaSet",
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
                ]
            },
            False,
        ),
        ("Job", {}, False),
    ],
    ids=["a ReplicaSet's", "an empty list", "its own constraints", "a Job's"],
)
def test_pods_that_kube_scheduler_spreads_by_default(kind, spec, want):
    found = pod_of(b.pod(controller=(kind, "o"), **spec))
    assert found.is_spread_by_default is want


def test_a_pod_without_a_controller_is_not_spread_by_default():
    assert not pod_of(b.pod()).is_spread_by_default


def _required(**term):
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


LABEL = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, (None, None)),
        ({"nodeSelector": {LABEL: "H100"}}, (None, "H100")),
        ({"affinity": _required(matchExpressions=[{"key": LABEL, "operator": "In", "values": ["T4"]}])}, (None, "T4")),
        (
            {"affinity": _required(matchExpressions=[{"key": LABEL, "operator": "In", "values": ["T4", "H100"]}])},
            (None, None),
        ),
        (
            {"affinity": _required(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n0"]}])},
            ("n0", None),
        ),
        ({"nodeSelector": {LABEL: "H100"}, "nodeName": "n1"}, (None, None)),
    ],
)
def test_a_pending_foreign_pod_counts_on_the_node_of_its_own_constraints(spec, want):
    found = resident(b.pod(schedulerName="mine", **spec))
    assert (found.promised, found.model) == want


def test_a_pending_pod_counts_for_the_model_of_its_decision():
    annotation = json.dumps({"nodes": [], "model": "H100"})
    found = resident(b.pod(labels={"fairgate.dev/team": "a"}, annotations={"fairgate.dev/decision": annotation}))
    assert (found.promised, found.model) == (None, "H100")
    forged = resident(b.pod(annotations={"fairgate.dev/decision": annotation}))
    assert forged.model is None
