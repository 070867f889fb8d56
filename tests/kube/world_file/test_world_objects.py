"""World files keep exactly the fields that decisions read."""

import json
import types
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.realistic import realistic_pod
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.policy import BUILT_IN_RESOURCES, Policy
from webhook.core.world.minimums import Replicas
from webhook.core.world.world import World
from webhook.kube.nodes import holds, nodes
from webhook.kube.objects import keys, objects
from webhook.kube.pod import devices, slices
from webhook.kube.pod.existing import to_reclaim_pod
from webhook.kube.watched.kept_fields import SHAPES, has_ended_for_good, kept_fields
from webhook.kube.watched.world_kinds import FILE_KINDS
from webhook.kube.workloads import unknown_kinds
from webhook.kube.world_file.world_file import add_objects

SECRET = "hunter2"
STRUCTS = {
    "Pod": objects.Pod,
    "Node": objects.Node,
    "Namespace": objects.Namespace,
    "PriorityClass": objects.PriorityClass,
    "DeviceClass": slices.DeviceClassObject,
    "ResourceClaim": devices.ResourceClaim,
    "ResourceClaimTemplate": devices.ResourceClaimTemplate,
    "ResourceSlice": slices.ResourceSlice,
    unknown_kinds.KIND: unknown_kinds.Autoscaler,
    nodes.KIND: nodes.PersistentVolume,
    "DeviceTaintRule": slices.DeviceTaintRule,
    "PodGroup": devices.PodGroup,
    "PodDisruptionBudget": holds.DisruptionBudget,
}


def fields(struct, path):
    """Every field that a struct reads, as a path; a list is represented by its elements."""
    for field in msgspec.structs.fields(struct):
        here = f"{path}.{field.encode_name}"
        inner = [each for each in flat(field.type) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
        yield here
        for each in inner:
            yield from fields(each, here)


def flat(annotation):
    if typing.get_origin(annotation) in (list, tuple, types.UnionType, typing.Union):
        for each in typing.get_args(annotation):
            yield from flat(each)
    else:
        yield annotation


def is_kept(path):
    kind, *parts = path.split(".")
    shape = SHAPES[kind]
    for part in parts:
        if shape is None:
            return True
        if part not in shape:
            return False
        shape = shape[part]
    return True


@pytest.mark.parametrize("kind", STRUCTS)
def test_every_field_that_is_read_is_kept(kind):
    of_others = {"generateName", "resourceVersion"} | (
        {"ownerReferences", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}
        if kind != "Pod"
        else set()
    )
    lost = [path for path in fields(STRUCTS[kind], kind) if not is_kept(path)]
    assert [path for path in lost if not of_others & set(path.split("."))] == []


def world_of(*found):
    made = World(Policy())
    add_objects(made, found, name="w")
    return made


def contents(*found):
    """What decisions read of a world with these objects."""
    made = world_of(*found)
    web = WorkloadName("vision/Deployment/web")
    parts = (made.fleet.nodes(), made.pods(), made.waiting.all(), made.namespaces(), made.priority_classes.values())
    return *map(list, parts), made.minimums.is_scaled(web)


OBJECTS = [
    b.node("n0", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}], is_cordoned=True),
    {**realistic_pod(), "status": {"phase": "Running"}},
    b.pod("plain", node="n0", uid="u1", controller=("Job", "train"), annotations={keys.DECISION: '{"user":"alice"}'}),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "annotations": {"owner": "alice"}}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7},
    b.autoscaler("web", namespace="vision", minimum=2, status={"currentReplicas": 3}),
]


def test_each_kind_of_a_file_has_its_fields():
    assert {row.kind for row in FILE_KINDS} == SHAPES.keys()


def test_a_world_is_the_same_after_reduction():
    stripped = [kept_fields(found, annotations=frozenset({"owner"})) for found in OBJECTS]
    assert contents(*stripped) == contents(*OBJECTS)


ANNOTATED = {
    keys.GANG: {keys.GANG: "true"},
    "group": {keys.GANG_ANNOTATIONS[0]: "group-1", keys.GANG_SIZES[0]: "4"},
    "domain": {keys.GANG: "true", keys.TOPOLOGY: "topology.kubernetes.io/rack"},
    "notice": {keys.EVICT_AT: "2026-01-01T00:00:00Z", keys.EVICT_FOR: "nlp"},
    keys.CHECKPOINTED: {keys.CHECKPOINTED: "2026-01-01T00:00:00Z"},
    keys.MOVABLE: {keys.MOVABLE: "true"},
    keys.SAFE_TO_EVICT: {keys.SAFE_TO_EVICT: "false"},
}


def reclaimed(found):
    decoded = msgspec.json.decode(json.dumps(found), type=objects.Pod)
    return to_reclaim_pod(decoded, BUILT_IN_RESOURCES)


@pytest.mark.parametrize("node", [None, "n0"])
@pytest.mark.parametrize("annotations", ANNOTATED.values(), ids=ANNOTATED)
def test_a_pod_is_the_same_for_reclaim(annotations, node):
    found = b.pod("p", uid="u1", node=node, controller=("Job", "train"), annotations=annotations)
    assert reclaimed(kept_fields(found, annotations=frozenset())) == reclaimed(found)
    bare = b.pod("p", uid="u1", node=node, controller=("Job", "train"))
    assert reclaimed(found) != reclaimed(bare), "the annotation is read"


def test_what_a_pod_has_done_is_the_same_for_reclaim():
    found = b.pod("p", uid="u1", node="n0", phase="Running")
    runs = {"name": "train", "restartCount": 2, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    waits = {"name": "train", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "x"}}}
    for status in (runs, waits):
        found["status"] |= {"startTime": "2025-01-01T00:00:00Z", "containerStatuses": [status]}
        assert reclaimed(kept_fields(found, annotations=frozenset())) == reclaimed(found)
    assert not reclaimed(found).is_working


def test_gangs_of_two_controllers_stay_two():
    pods = [b.pod(f"p{n}", uid=f"u{n}", controller=("Job", f"j{n}"), annotations={keys.GANG: "true"}) for n in (1, 2)]
    read = world_of(*(kept_fields(each, annotations=frozenset()) for each in pods)).pods()
    assert len({each.gang for each in read} - {None}) == 2


def test_autoscalers_say_what_is_to_stay_in_either_version():
    replicas = b.replicas("web", 2, node="n0")
    for version in ("v2", "v1"):
        there = world_of(*replicas, {**b.autoscaler("web", minimum=None), "apiVersion": f"autoscaling/{version}"})
        assert there.minimums.of(WorkloadName("vision/Deployment/web")) == Replicas(1, 2, 2, is_scaled=True)
    too_long = b.autoscaler("w" * 400)
    assert [*world_of(too_long, b.node()).fleet.nodes()], "nothing else is refused for it"


def test_foreign_annotations_and_fields_are_dropped():
    pod = realistic_pod()
    spec = pod["spec"]
    spec["containers"][0] |= {"command": [SECRET], "args": [SECRET], "image": SECRET}
    spec["containers"][0]["env"].append({"name": "TOKEN", "value": SECRET})
    spec["volumes"] = [{"name": SECRET, "secret": {"secretName": SECRET}}, {"name": "x", "ephemeral": {"a": SECRET}}]
    spec["imagePullSecrets"] = [{"name": SECRET}]
    pod["metadata"].setdefault("annotations", {})["kubectl.kubernetes.io/last-applied-configuration"] = SECRET
    kept = json.dumps(kept_fields(pod, annotations=frozenset()))
    assert SECRET not in kept
    assert "MLFLOW" not in kept
    assert '"ephemeral": {}' in kept


def test_a_pod_keeps_what_is_said_of_its_run():
    annotations = {keys.RUN_TIME: "2h", "other": "x"}
    found = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {},
    }
    kept = kept_fields(found, annotations=frozenset())
    assert kept["metadata"]["annotations"] == {keys.RUN_TIME: "2h"}


def test_a_waiting_pod_keeps_what_says_that_it_waits():
    decision = {"demand": {b.GPU: "1"}, "gpus": "1", "mode": "queue", "nodes": []}
    decision |= {"code": "WaitsForLimit", "policy": "p1", "at": "now"}
    annotations = {keys.DECISION: json.dumps(decision), keys.WAITING: "waits: team vision holds 4 of 4"}
    annotations |= {keys.RECLAIMING: "2026-01-01T00:00:00Z", keys.GANG_WHOLE: "4"}
    pod = b.pod("next", uid="u1", labels={keys.TEAM: "vision"}, annotations=annotations)
    pod["spec"]["schedulingGates"] = [{"name": keys.QUEUE_GATE}]
    read = world_of(kept_fields(pod, annotations=frozenset()))
    want = ("u1", "waits: team vision holds 4 of 4", True, 4)
    assert [(each.uid, each.text, each.keeps_room, each.gang_whole) for each in read.waiting.all()] == [want]
    assert [*read.pods()] == []
    assert contents(kept_fields(pod, annotations=frozenset())) == contents(pod)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"phase": "Running"}, False),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Failed", "reason": "OutOfcpu"}, True),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, False),
    ],
    ids=lambda each: " ".join(each.values()) if isinstance(each, dict) else "",
)
def test_of_ended_pods_a_world_needs_those_that_their_nodes_rejected(status, want):
    assert has_ended_for_good(b.pod() | {"status": status}) == want
    assert not has_ended_for_good(b.node("node-1") | {"status": status})


def test_other_kinds_are_dropped():
    assert kept_fields({"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}}, annotations=frozenset()) is None


TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "labels", "containers", "name", "ports"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from([*STRUCTS, "Other"]), st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), TREE))
def test_reduction_is_idempotent(kind, tree):
    once = kept_fields({"kind": kind, **tree}, annotations=frozenset())
    assert once is None or kept_fields(once, annotations=frozenset()) == once
