"""Pods at the door and in the cluster, as the core sees them."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from webhook.core.amount import ONE_GPU
from webhook.core.demand import Container, pod_requests
from webhook.core.pod import Handling, Owner
from webhook.core.policy import BUILT_IN_RESOURCES
from webhook.core.selector import Constraints, Effect, NodeTerm, Operator, Requirement, Toleration
from webhook.kube import objects
from webhook.kube.pods import InvalidPod, to_pod, to_resident

PODS = msgspec.json.Decoder(objects.Pod)


def struct(manifest):
    return PODS.decode(json.dumps(manifest))


def at_the_door(manifest, weights=BUILT_IN_RESOURCES):
    return to_pod(struct(manifest), namespace=manifest["metadata"].get("namespace", "vision"), weights=weights)


def resident(manifest):
    return to_resident(struct(manifest), BUILT_IN_RESOURCES)


def problems(manifest):
    found = at_the_door(manifest)
    assert isinstance(found, InvalidPod), found
    return found.problems


def resources(requests=None, limits=None):
    return {"requests": requests or {}, "limits": limits or {}}


def with_resources(requests=None, limits=None, **spec):
    return b.pod(containers=[{"name": "train", "resources": resources(requests, limits)}], **spec)


# --- demand


def test_the_demand_of_a_worker_with_a_helper_and_an_init_container():
    pod = at_the_door(b.realistic_pod(gpus=2))
    assert pod.demand.gpus == 2 * ONE_GPU
    assert pod.demand.devices == (("nvidia.com/gpu", 2),)
    assert dict(pod.demand.requests) == {
        "cpu": 6050,
        "memory": 48 * 2**30 + 64 * 2**20,
        "nvidia.com/gpu": 2,
        "pods": 1,
    }


def test_requests_default_to_limits_resource_by_resource():
    pod = at_the_door(with_resources({"cpu": "1"}, {"cpu": "4", "memory": "8Gi", b.GPU: 3}))
    assert dict(pod.demand.requests) == {"cpu": 1000, "memory": 8 * 2**30, b.GPU: 3, "pods": 1}


def test_sidecars_are_counted_and_init_containers_only_at_their_peak():
    manifest = b.pod(
        gpus=1,
        initContainers=[
            b.container("proxy", gpus=1, restartPolicy="Always"),
            b.container("warm-up", gpus=4),
        ],
    )
    assert at_the_door(manifest).demand.devices == ((b.GPU, 5),)


def test_overhead_is_added():
    pod = at_the_door(b.pod(overhead={"cpu": "250m", "memory": "120Mi"}))
    assert dict(pod.demand.requests)["cpu"] == 6250


def test_pod_level_requests_replace_the_sum_for_cpu_and_memory_only():
    manifest = with_resources({"cpu": "1", "memory": "1Gi"}, {b.GPU: 1}, resources=resources({"cpu": "9"}))
    assert dict(at_the_door(manifest).demand.requests) == {"cpu": 9000, "memory": 2**30, b.GPU: 1, "pods": 1}


def test_pod_level_limits_are_requests_where_no_container_asks():
    manifest = with_resources({"cpu": "1"}, {b.GPU: 1}, resources=resources(None, {"cpu": "9", "memory": "2Gi"}))
    assert dict(at_the_door(manifest).demand.requests) == {"cpu": 1000, "memory": 2 * 2**30, b.GPU: 1, "pods": 1}


def test_a_pod_without_resources_takes_its_place_among_the_nodes_pods():
    pod = at_the_door(b.pod(containers=[{"name": "web"}]))
    assert (pod.demand.gpus, pod.demand.requests) == (0, (("pods", 1),))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.booleans()), max_size=3),
)
def test_the_demand_is_the_cores_formula_over_the_containers(app, init):
    manifest = b.pod(
        containers=[b.container(f"c{i}", gpus=gpus, cpu=str(cpu)) for i, (gpus, cpu) in enumerate(app)],
        initContainers=[
            b.container(f"i{i}", gpus=gpus, cpu=str(cpu), **({"restartPolicy": "Always"} if is_sidecar else {}))
            for i, (gpus, cpu, is_sidecar) in enumerate(init)
        ],
    )

    def core(gpus, cpu, is_restartable=False):
        return Container({b.GPU: gpus, "cpu": 1000 * cpu, "memory": 48 * 2**30}, is_restartable)

    want = pod_requests([core(*c) for c in app], init=[core(*c) for c in init]) | {"pods": 1}
    assert dict(at_the_door(manifest).demand.requests) == {name: n for name, n in want.items() if n}


def test_weights_say_what_counts_as_gpu_also_after_they_changed():
    manifest = b.pod(resource="example.com/npu", gpus=2)
    assert at_the_door(manifest).demand.gpus == 0
    assert at_the_door(manifest, {"example.com/npu": ONE_GPU // 2}).demand.gpus == ONE_GPU
    for share in range(1, 20):  # more policies than are remembered at a time
        assert at_the_door(manifest, {"example.com/npu": share}).demand.gpus == 2 * share
    assert at_the_door(manifest).demand.gpus == 0


def test_readings_are_shared_between_pods_of_one_template_and_forgotten_in_time():
    first = at_the_door(b.realistic_pod(index=1))
    assert at_the_door(b.realistic_pod(index=2)).demand is first.demand
    for cpu in range(4200):
        assert at_the_door(b.pod(containers=[b.container(cpu=f"{cpu}m")])).demand.gpus == ONE_GPU
    again = at_the_door(b.realistic_pod(index=3)).demand
    assert again == first.demand
    assert again is not first.demand


def test_a_pod_with_very_many_resources_is_read_without_being_kept():
    huge = {f"example.com/device-{i}": 1 for i in range(1000)}
    manifest = with_resources(huge, huge)
    first, again = at_the_door(manifest).demand, at_the_door(manifest).demand
    assert first == again
    assert first is not again
    assert len(first.requests) == 1001


# --- what is wrong with GPU amounts


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
        "container train: nvidia.com/gpu is 0.5; GPUs are counted in whole pieces: ask for 1, "
        "or for a resource that is a share of a GPU, where the cluster offers one",
    ),
    "thousandths": (
        with_resources(None, {b.GPU: "500m"}),
        "container train: nvidia.com/gpu is 500m; GPUs are counted in whole pieces: ask for 1, "
        "or for a resource that is a share of a GPU, where the cluster offers one",
    ),
    "negative": (
        with_resources(None, {b.GPU: -1}),
        "container train: nvidia.com/gpu is -1; a number of GPUs cannot be negative: ask for 0 or more",
    ),
    "huge": (
        with_resources(None, {b.GPU: "1000001"}),
        "container train: nvidia.com/gpu is 1000001, more than the 1000000 that one container may ask for; "
        "check the number",
    ),
    "pod level": (
        with_resources(None, {b.GPU: 1}, resources=resources(None, {b.GPU: 1})),
        "pod resources: nvidia.com/gpu cannot be given to the pod as a whole; set it on the container that uses it",
    ),
    "in an init container": (
        b.pod(initContainers=[{"name": "warm-up", "resources": resources({b.GPU: 1})}]),
        "init container warm-up: nvidia.com/gpu request 1 has no limit; GPUs cannot be overcommitted: "
        "set the limit to the same number",
    ),
}


@pytest.mark.parametrize(("manifest", "want"), WRONG.values(), ids=WRONG)
def test_gpu_amounts_that_kubernetes_would_refuse_are_explained(manifest, want):
    assert want in problems(manifest)


UNREADABLE = {
    "no number": (with_resources(None, {b.GPU: "many"}), "container train: nvidia.com/gpu: 'many' is not a quantity"),
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
def test_what_cannot_be_read_is_named_with_its_place(manifest, want):
    assert any(want in problem for problem in problems(manifest)), problems(manifest)


def test_all_problems_are_told_at_once():
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
    assert at_the_door(with_resources({b.GPU: "2"}, {b.GPU: "2000m"})).demand.devices == ((b.GPU, 2),)


# --- who places it


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
def test_who_places_a_pod(manifest, want):
    assert at_the_door(manifest).handling is want


def test_a_daemon_set_of_another_api_is_no_daemon_set():
    manifest = b.pod(controller=("DaemonSet", "x"))
    manifest["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    assert at_the_door(manifest).handling is Handling.MANAGED


def test_only_the_controller_among_the_owners_counts():
    manifest = b.pod(controller=("Job", "train"))
    manifest["metadata"]["ownerReferences"].insert(
        0, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}
    )
    assert at_the_door(manifest).owner == Owner("Job", "train")


# --- where it may go


def test_selector_affinity_and_tolerations_become_constraints():
    manifest = b.pod(
        nodeSelector={"disk": "ssd"},
        tolerations=[
            {"key": b.GPU, "operator": "Exists", "effect": "NoSchedule"},
            {"key": "a", "value": "b"},
            {"operator": "Exists"},
            {"key": "future", "operator": "Gt", "value": "1"},
        ],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-9"]}],
                        },
                        {},
                    ]
                }
            }
        },
    )
    assert at_the_door(manifest).constraints == Constraints(
        node_selector=(("disk", "ssd"),),
        terms=(
            NodeTerm(
                (Requirement("zone", Operator.IN, ("a", "b")),),
                (Requirement("metadata.name", Operator.NOT_IN, ("node-9",)),),
            ),
            NodeTerm(),
        ),
        tolerations=(
            Toleration(b.GPU, exists=True, effect=Effect.NO_SCHEDULE),
            Toleration("a", value="b"),
            Toleration(exists=True),
        ),
    )


def test_null_parts_are_absent_parts():
    manifest = b.pod(affinity=None, nodeSelector=None, tolerations=None, resourceClaims=None, overhead=None)
    assert at_the_door(manifest) == at_the_door(b.pod())


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, False),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, True),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, True),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [], PREFERRED: [{"weight": 1}]}}}, False),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]}, True),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, False),
        ({"containers": [b.container(ports=[{"containerPort": 80, "hostPort": 80}])]}, True),
        ({"containers": [b.container(ports=[{"containerPort": 80}])]}, False),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, True),
        ({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}, True),
        ({"volumes": [{"name": "ephemeral", "emptyDir": {}}]}, False),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}, True),
        ({"resourceClaims": []}, False),
    ],
    ids=[
        "none",
        "pod affinity",
        "pod anti-affinity",
        "preferred only",
        "hard spread",
        "soft spread",
        "host port",
        "port",
        "claim of a volume",
        "ephemeral volume",
        "empty dir",
        "device claim",
        "no device claims",
    ],
)
def test_conditions_that_only_the_scheduler_judges_leave_the_constraints_open(spec, want):
    manifest = b.pod()
    manifest["spec"].update(spec)
    assert at_the_door(manifest).has_open_constraints is want


def test_labels_and_annotations_of_ours_are_read():
    pod = at_the_door(
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
    assert (pod.team_label, pod.tier_label, pod.pool, pod.mark, pod.priority_class) == (
        "vision",
        "preemptible",
        "a100",
        "{}",
        "high",
    )
    assert pod.requires == {"nvlink", "model-on-gpu"}


def test_a_stand_in_names_a_pod_only_until_it_has_its_own_name_and_uid():
    given = {"namespace": "vision", "weights": BUILT_IN_RESOURCES, "name": "stand-in", "uid": "u-0"}
    nameless = b.pod()
    nameless["metadata"] = {"generateName": "train-"}
    assert (to_pod(struct(nameless), **given).name, to_pod(struct(nameless), **given).uid) == ("stand-in", "u-0")
    own = to_pod(struct(b.pod(uid="u-1")), **given)
    assert (own.name, own.uid) == ("train-0", "u-1")


# --- in the cluster


def test_a_running_pod_is_a_resident_with_its_node_team_and_owner():
    manifest = b.pod(
        uid="u-1",
        node="node-1",
        phase="Running",
        labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"},
        annotations={"fairgate.dev/decision": '{"user":"alice","at":"now"}'},
        controller=("Job", "train"),
    )
    found = resident(manifest)
    assert (found.uid, found.namespace, found.name, found.node) == ("u-1", "vision", "train-0", "node-1")
    assert (found.team_label, found.tier_label, found.user) == ("vision", "preemptible", "alice")
    assert found.owner == Owner("Job", "train")
    assert found.demand.gpus == ONE_GPU
    assert not found.is_terminating


@pytest.mark.parametrize(
    ("manifest", "counts"),
    [
        (b.pod(phase="Succeeded", node="node-1"), False),
        (b.pod(phase="Failed", node="node-1"), False),
        (b.pod(phase="Pending"), True),
        (b.pod(gpus=None, phase="Pending"), False),
        (b.pod(gpus=None, phase="Running", node="node-1"), True),
    ],
    ids=["succeeded", "failed", "waiting for GPUs", "waiting without GPUs", "running without GPUs"],
)
def test_which_pods_count(manifest, counts):
    assert (resident(manifest) is not None) is counts


def test_a_terminating_pod_counts_until_it_is_gone():
    manifest = b.pod(node="node-1", phase="Running")
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert resident(manifest).is_terminating


def test_a_hand_written_pod_needs_neither_uid_nor_namespace():
    manifest = b.pod()
    del manifest["metadata"]["namespace"]
    assert (resident(manifest).uid, resident(manifest).namespace) == ("default/train-0", "default")


def test_what_the_door_would_refuse_counts_as_it_stands_once_it_is_in():
    assert resident(with_resources({b.GPU: "1.5"}, {b.GPU: "2"})).demand.devices == ((b.GPU, 2),)


def test_amounts_that_cannot_be_read_are_an_error():
    with pytest.raises(ValueError, match="container train: cpu: 'x' is not a quantity"):
        resident(with_resources({"cpu": "x"}))


@pytest.mark.parametrize("mark", ["{}", '{"user":7}', '"user"', "not json", '{"user":null}'])
def test_a_mark_that_names_nobody_names_nobody(mark):
    assert resident(b.pod(annotations={"fairgate.dev/decision": mark})).user is None
