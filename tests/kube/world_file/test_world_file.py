"""World files: kubectl's output is read, and problems are reported with their path."""

import json

import msgspec
import pytest
import yaml

from tests import builders as b
from tests.core.support import make
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.pod import NamespaceFacts, PriorityTriple
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.pod.devices import to_claim
from webhook.kube.pod.slices import to_slice
from webhook.kube.watched.kept_fields import kept_fields
from webhook.kube.watched.world_kinds import DEVICES
from webhook.kube.world_file.world_file import WorldFileError, fill_world, read_world

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "labels": {"a": "b"}}}
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 7,
}
OBJECTS = [
    b.node("node-1"),
    b.node("node-2"),
    b.pod("running", node="node-1", phase="Running"),
    b.pod("waiting", phase="Pending"),
    b.pod("done", node="node-2", phase="Succeeded"),
    NAMESPACE,
    PRIORITY,
]


def listed(*objects):
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(objects)}


def parse(text):
    world = World(Policy())
    fill_world(world, text, name="world.yaml")
    return world


def problems(text):
    with pytest.raises(WorldFileError) as refused:
        parse(text)
    assert str(refused.value) == "\n".join(refused.value.problems)
    return refused.value.problems


FORMS = {
    "a YAML list": yaml.safe_dump(listed(*OBJECTS)),
    "a JSON list": json.dumps(listed(*OBJECTS), indent=2),
    "YAML documents": yaml.safe_dump_all(OBJECTS),
    "lists and single objects": yaml.safe_dump_all([listed(*OBJECTS[:3]), *OBJECTS[3:]]) + "---\n# nothing here\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_supported_form_is_read(text):
    world = parse(text)
    assert [node.name for node in world.fleet.nodes()] == ["node-1", "node-2"]
    assert [(pod.name, pod.node) for pod in world.pods()] == [("running", "node-1"), ("waiting", None)]
    assert [*world.namespaces()] == [NamespaceFacts("vision", {"a": "b"})]
    assert world.priority_classes == {"high": PriorityTriple("high", 7)}


def test_a_file_is_read_and_fills_a_world(tmp_path):
    path = tmp_path / "world.json"
    path.write_text(json.dumps(listed(*OBJECTS)))
    world = World(Policy())
    read_world(world, path)
    taken = b.demand(10)
    assert not world.fleet.fits("node-1", taken)
    assert world.fleet.fits("node-2", taken)


def rejected(number, **more):
    at = f"2026-01-01T09:00:{number:02}Z"
    made = b.pod(f"r-{number}", uid=f"r-{number}", node="node-1", **more)
    made["metadata"]["creationTimestamp"] = at
    return made | {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}


def test_rejected_pods_use_nothing_and_close_their_node_as_of_the_latest_pod():
    objects = [b.node("node-1"), b.node("node-2"), *(rejected(number) for number in range(30))]
    world = parse(json.dumps(listed(*objects)))
    assert list(world.pods()) == []
    assert [(each.node, each.rejections) for each in world.rejecting_nodes.closed()] == [("node-1", 30)]
    team = world.tenancy("vision").team_name
    assert world.rejecting_nodes.avoided(team, make.pod(1), world.fleet).closed == world.fleet.bit("node-1")
    later = b.pod("later", node="node-2", phase="Running")
    later["metadata"]["creationTimestamp"] = "2026-01-01T09:10:00Z"
    world = parse(json.dumps(listed(*objects, later)))
    assert world.rejecting_nodes.avoided(team, make.pod(1), world.fleet).closed == 0, "its time is over"


def test_amounts_may_be_plain_numbers():
    text = "{apiVersion: v1, kind: Node, metadata: {name: n0}, status: {allocatable: {cpu: 4, nvidia.com/gpu: 2}}}"
    assert parse("---\n" + text).fleet.get("n0").allocatable == {"cpu": 4000, "nvidia.com/gpu": 2}


CLAIMED = [row for row in DEVICES if row.kind in ("ResourceClaim", "ResourceSlice")][::-1]
DEVICE = {"attributes": {"type": {"string": "gpu"}}, "taints": [{"effect": "None"}]}
REQUEST = {"deviceClassName": "gpu.nvidia.com", "count": 2, "selectors": []}


@pytest.mark.parametrize(
    ("version", "request_", "device"),
    [
        ("v1", {"name": "r", "exactly": REQUEST}, {"name": "d", **DEVICE}),
        ("v1beta2", {"name": "r", "exactly": REQUEST}, {"name": "d", **DEVICE}),
        ("v1beta1", {"name": "r", **REQUEST}, {"name": "d", "basic": DEVICE}),
    ],
)
def test_claims_and_slices_of_each_version_are_kept_and_read(version, request_, device):
    def made(kind, name, spec):
        metadata = {"name": name, "namespace": "vision"}
        return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": metadata, "spec": spec}

    pool = {"name": "n0", "generation": 1}
    objects = (
        made("ResourceClaim", "c", {"devices": {"requests": [request_]}}),
        made("ResourceSlice", "s", {"driver": "gpu.nvidia.com", "nodeName": "n0", "pool": pool, "devices": [device]}),
    )
    kept = [kept_fields(each, annotations=frozenset()) for each in objects]
    assert kept == list(objects), "all of it is read"
    found = parse(yaml.safe_dump(listed(*kept)))
    assert ClaimKey("claim", "vision", "c") in found.claims
    [claim, offered] = [msgspec.convert(each, row.item) for row, each in zip(CLAIMED, kept, strict=True)]
    assert [each.number for asked in to_claim(claim) for each in asked.alternatives] == [2]
    assert [each.attributes for each in to_slice(offered).devices] == [{"gpu.nvidia.com/type": "gpu"}]


def test_an_empty_list_is_an_empty_world():
    assert len(parse(yaml.safe_dump(listed())).fleet) == 0


def nameless(manifest):
    return {**manifest, "metadata": {}}


BAD = {
    "an empty file": ("", "world.yaml: is empty"),
    "only comments": ("# nothing\n---\n", "world.yaml: is empty"),
    "malformed YAML": ("a: [1", "world.yaml: not valid YAML: while parsing a flow sequence"),
    "malformed JSON": ("{]", "world.yaml: JSON is malformed"),
    "a tag that runs code": ("!!python/object/apply:os.getcwd []", "world.yaml: not valid YAML: could not determine"),
    "deep YAML": ("[" * 100_000, "world.yaml: not valid YAML: nested more than 100 levels deep, in line 1"),
    "deep JSON": ('{"a":' * 100_000, "world.yaml: nested too deeply; expected a v1 List"),
    "a word": ("hello", "world.yaml: expected object, got str; expected a v1 List"),
    "a table in YAML": ("- 1\n- 2", "world.yaml: expected object, got array; expected a v1 List"),
    "an item that is a number": (yaml.safe_dump(listed(7)), "world.yaml: items[0]: expected object, got int"),
    "another kind": (
        yaml.safe_dump(listed(b.node(), {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}})),
        "world.yaml: items[1]: got apps/v1 Deployment; expected one of v1 Node, v1 Pod, v1 Namespace, "
        "scheduling.k8s.io/v1 PriorityClass, resource.k8s.io/v1 DeviceClass, resource.k8s.io/v1 ResourceSlice, "
        "resource.k8s.io/v1 DeviceTaintRule, resource.k8s.io/v1 ResourceClaim, "
        "resource.k8s.io/v1 ResourceClaimTemplate, scheduling.k8s.io/v1beta1 PodGroup, "
        "autoscaling/v2 HorizontalPodAutoscaler, v1 PersistentVolume, policy/v1 PodDisruptionBudget, "
        "v1 LimitRange, fairgate.dev/v1alpha1 TeamLedger, apiextensions.k8s.io/v1 CustomResourceDefinition, "
        "v1 ConfigMap, "
        "or a v1 List of them",
    ),
    "another version": (
        yaml.safe_dump({**PRIORITY, "apiVersion": "scheduling.k8s.io/v1beta1"}),
        "world.yaml: got scheduling.k8s.io/v1beta1 PriorityClass; expected one of",
    ),
    "no kind": ("metadata: {name: x}", "world.yaml: got no apiVersion no kind; expected one of"),
    "no name": (yaml.safe_dump(listed(nameless(b.node()))), "items[0]: Node without metadata.name"),
    "a malformed amount": (
        yaml.safe_dump(listed(b.node(), b.node("node-2", cpu="many"))),
        "world.yaml: items[1] (Node node-2): status.allocatable.cpu: 'many' is not a quantity",
    ),
    "a wrong type": (
        yaml.safe_dump_all([b.node(), {**b.pod(), "spec": {"containers": {}}}]),
        "world.yaml: document 2 (Pod vision/train-0): spec.containers: expected array, got object",
    ),
    "a malformed amount in a pod": (
        yaml.safe_dump(listed(b.pod(gpus="x"))),
        "world.yaml: items[0] (Pod vision/train-0): container train: nvidia.com/gpu: 'x' is not a quantity",
    ),
    "the same node twice": (yaml.safe_dump(listed(b.node(), b.node())), "world.yaml: Node node-1 occurs 2 times"),
    "the same pod twice": (yaml.safe_dump(listed(b.pod(), b.pod())), "Pod vision/train-0 occurs 2 times; keep one"),
}


@pytest.mark.parametrize(("text", "want"), BAD.values(), ids=BAD)
def test_malformed_files_are_refused_with_path_and_remedy(text, want):
    assert any(want in problem for problem in problems(text)), problems(text)


def test_problems_are_listed_up_to_a_limit_and_then_counted():
    bad = [b.node(f"node-{i}", cpu="x") for i in range(30)]
    found = problems(yaml.safe_dump(listed(*bad)))
    assert len(found) == 21
    assert found[-1] == "world.yaml: and 10 more problems"


def test_an_unreadable_file_is_reported(tmp_path):
    with pytest.raises(WorldFileError, match=r"none\.yaml: cannot be read: No such file"):
        read_world(World(Policy()), str(tmp_path / "none.yaml"))


def test_yaml_that_contains_itself_is_refused():
    assert "not valid YAML" in problems("&a\nkind: Pod\nself: *a\n")[0]
