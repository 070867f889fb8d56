"""Pseudonyms: no real name remains, and decisions do not change."""

import json

import msgspec
import pytest

from tests import builders as b
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import ONE_GPU, GangId, Namespace, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.node import Autoscaler, KeptPlace
from webhook.core.model.policy import Policy
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold
from webhook.core.world.minimums import Replicas
from webhook.core.world.world import World
from webhook.kube.nodes.holds import hold_text, parse_hold, to_disruption
from webhook.kube.nodes.nodes import objects_of
from webhook.kube.objects import keys
from webhook.kube.watched.kept_fields import kept_fields
from webhook.kube.watched.world_kinds import BUDGETS
from webhook.kube.world_file.pseudonyms import Pseudonyms, names_in_policy
from webhook.kube.world_file.world_file import add_objects
from webhook.policy.watch import parse

GPU = ResourceName("nvidia.com/gpu")
POLICY = parse(
    {
        "p.yaml": b"""
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision, "vision-*"], gpus: {guaranteed: 4, limit: 8}}
  - {name: nlp, namespaceSelector: {matchLabels: {dept: nlp}}, gpus: {guaranteed: 4, limit: 8}}
  - {name: n, namespaces: ["n*"]}
pools:
  - name: a100
    nodeSelector: {kind: a100}
"""
    },
    origin="p",
)
DECISION = json.dumps({"demand": {}, "nodes": ["secret-node"], "user": "secret-user", "code": "Borrows"})


def namespace(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}},
    }


OBJECTS = [
    namespace("vision"),
    namespace("vision-secret"),
    namespace("secret", dept="nlp"),
    namespace("elsewhere-secret"),
    b.node("secret-node", model="A100", labels={"kind": "a100", "rack": "secret-rack", "slots": "8"}),
    b.pod(
        "secret-pod",
        namespace="vision-secret",
        node="secret-node",
        uid="secret-uid",
        controller=("Job", "secret-job"),
        labels={"app": "secret-app", keys.TEAM: "vision", keys.TIER: "preemptible"},
        annotations={keys.DECISION: DECISION},
        nodeSelector={"rack": "secret-rack", "kubernetes.io/hostname": "secret-node"},
        priorityClassName="secret-class",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["secret-node"]}]},
                        {"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["4"]}]},
                    ]
                }
            },
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "namespaces": ["vision-secret"],
                        "labelSelector": {"matchLabels": {"app": "secret-app"}},
                    }
                ]
            },
        },
    ),
    b.pod("secret-two", namespace="secret", node="secret-node", gpus=2),
    b.pod("secret-two", namespace="elsewhere-secret", node="secret-node", gpus=1),
]


def written(policy=POLICY):
    names = Pseudonyms(names_in_policy(policy))
    return [names.rewritten(kept_fields(found, annotations=frozenset())) for found in OBJECTS], names


def world(found):
    made = World(POLICY)
    add_objects(made, found, name="w")
    return made


def sums(made):
    return {team: (book.total, book.guaranteed, len(book)) for team, book in made.usage_by_team().items()}


def test_only_names_in_the_policy_remain():
    found, _ = written()
    assert "secret" not in json.dumps(found)


def test_usage_by_team_is_unchanged():
    found, _ = written()
    assert sums(world(found)) == sums(world(OBJECTS))
    assert set(sums(world(OBJECTS))) == {"vision", "nlp", "unassigned"}


def test_eligible_nodes_are_unchanged():
    found, _ = written()
    pod = next(each for each in found if each["metadata"].get("namespace") == "vision-namespace-1")
    [node] = [each for each in found if each["kind"] == "Node"]
    labels = node["metadata"]["labels"]
    assert pod["spec"]["nodeSelector"].items() <= labels.items()
    assert pod["spec"]["nodeName"] == node["metadata"]["name"] == labels["kubernetes.io/hostname"]
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == [node["metadata"]["name"]]
    assert terms["nodeSelectorTerms"][1]["matchExpressions"][0]["values"] == ["4"]
    assert b.decision_of(pod)["nodes"] == [node["metadata"]["name"]]


def test_names_of_policy_and_vendors_are_kept():
    found, _ = written()
    [node] = [each for each in found if each["kind"] == "Node"]
    assert (
        node["metadata"]["labels"].items() >= {"kind": "a100", "nvidia.com/gpu.product": "A100", "slots": "8"}.items()
    )


def test_the_same_objects_get_the_same_pseudonyms():
    assert written()[0] == written()[0]


def test_a_pseudonym_is_never_selected_by_a_glob_that_did_not_select_the_name():
    names = Pseudonyms(names_in_policy(POLICY))
    assert not names.namespace("elsewhere-secret").startswith("n")


def test_without_teams_every_namespace_is_renamed():
    found, names = written(Policy())
    assert {each["metadata"]["name"] for each in found if each["kind"] == "Namespace"} == {
        f"namespace-{number}" for number in range(1, 5)
    }
    assert names.given["namespace", "vision"] == "namespace-1"


@pytest.mark.parametrize("mark", ["no json: secret", "[]", '{"nodes": "x"}', "{}"])
def test_a_malformed_decision_is_removed(mark):
    found = b.pod("p", annotations={keys.DECISION: mark})
    kept = Pseudonyms(names_in_policy(POLICY)).rewritten(kept_fields(found, annotations=frozenset()))
    assert "secret" not in json.dumps(kept)


def gated(text, *gates):
    decision = {"demand": {b.GPU: "1"}, "gpus": "1", "mode": "queue", "nodes": []}
    decision |= {"code": "WaitsForLimit", "policy": "p1", "of": "vision/secret-pod", "at": "now"}
    found = b.pod(
        "secret-pod",
        namespace="vision-secret",
        uid="secret-uid",
        labels={keys.TEAM: "vision"},
        annotations={keys.DECISION: json.dumps({**decision, "user": "secret-user"}), keys.WAITING: text},
    )
    found["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return found


HELD = NodeHold(
    "h1",
    NodeName("secret-node"),
    until=1_700_000_060,
    since=1_700_000_000,
    beneficiaries=(Beneficiary(Uid("secret-uid"), Namespace("vision-secret"), "secret-pod"),),
    targets=(
        EvictionTarget(
            Uid("secret-u2"), Namespace("secret"), "secret-two", Uid("secret-uid"), 1_700_000_030, GangId("secret-gang")
        ),
    ),
    places=(
        KeptPlace("Job vision-secret/secret-job", "vision-secret/secret-pod", TeamName("vision"), ((GPU, 1),)),
        KeptPlace("secret-u3", "secret/secret-three", TeamName("nlp"), ((GPU, 2),), replaces=Uid("secret-uid")),
        KeptPlace("", f"a pod of 8 {GPU}", TeamName(""), ((GPU, 8),)),
    ),
)


def held(annotation):
    node = next(each for each in OBJECTS if each["kind"] == "Node")
    metadata = node["metadata"] | {"annotations": {keys.HOLD: annotation}}
    taint = {"key": keys.HELD, "value": "h1", "effect": "NoSchedule"}
    found = [node | {"metadata": metadata, "spec": {"taints": [taint]}}, *(each for each in OBJECTS if each != node)]
    names = Pseudonyms(names_in_policy(POLICY))
    return [names.rewritten(kept_fields(each, annotations=frozenset())) for each in found]


def test_a_node_keeps_its_room_for_the_same_pods_under_their_pseudonyms():
    found = held(hold_text(HELD))
    assert "secret" not in json.dumps(found)
    [node] = world(found).fleet.nodes()
    pod = next(each for each in found if each["metadata"].get("namespace") == "vision-namespace-1")
    name, owner = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]["name"]
    hold = parse_hold(found[0]["metadata"]["annotations"][keys.HOLD], node.name)
    assert hold.beneficiaries == ((pod["metadata"]["uid"], "vision-namespace-1", name, ""),)
    assert [(each.beneficiary, each.at, each.gang) for each in hold.targets] == [
        (pod["metadata"]["uid"], 1_700_000_030, None)
    ]
    assert (node.is_held, node.kept) == (True, hold.places)
    job, in_line, largest = node.kept
    assert (job.key, job.name) == (f"Job vision-namespace-1/{owner}", f"vision-namespace-1/{name}")
    assert (in_line.replaces, in_line.requests, in_line.team) == (pod["metadata"]["uid"], ((GPU, 2),), "nlp")
    assert in_line.key.startswith("uid-")
    assert largest == HELD.places[2]


@pytest.mark.parametrize("text", ["secret", "[]", '{"id": "secret"}', '{"secret": 1}'])
def test_a_malformed_hold_is_removed(text):
    found = held(text)
    assert "secret" not in json.dumps(found)
    assert [each.kept for each in world(found).fleet.nodes()] == [()]


def test_a_waiting_pod_still_waits_and_its_text_which_names_holders_is_dropped():
    found = gated("waits: user secret-user holds 4", keys.QUEUE_GATE, "kueue.x-k8s.io/admission", "secret.example/gate")
    kept = Pseudonyms(names_in_policy(POLICY)).rewritten(kept_fields(found, annotations=frozenset()))
    assert "secret" not in json.dumps(kept)
    [pod] = world([kept]).waiting.all()
    assert (pod.team, pod.user, pod.text) == ("vision", "user-1", "")
    assert pod.pod.foreign_gates == ("kueue.x-k8s.io/admission", "gate-1")


CLAIM = {
    "devices": {"requests": [{"name": "secret-gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]}
}
DRA = "resource.k8s.io/v1"


RESULT = {"request": "secret-gpus", "driver": "gpu.nvidia.com", "pool": "secret-node", "device": "secret-gpu"}
PART = {"shareID": "a671734a", "consumedCapacity": {"memory": "10Gi"}}


def test_pods_still_refer_to_their_claims():
    objects = [
        {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}},
        {
            "apiVersion": DRA,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "secret-template", "namespace": "vision"},
            "spec": {"spec": CLAIM},
        },
        {
            "apiVersion": DRA,
            "kind": "ResourceClaim",
            "metadata": {"name": "secret-claim", "namespace": "vision"},
            "spec": CLAIM,
            "status": {
                "allocation": {
                    "devices": {"results": [RESULT, RESULT | PART]},
                    "nodeSelector": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["secret-node"]}]}
                        ]
                    },
                }
            },
        },
        b.pod(
            "secret-one",
            gpus=None,
            resourceClaims=[{"name": "secret", "resourceClaimTemplateName": "secret-template"}],
        ),
        b.pod("secret-two", gpus=None, resourceClaims=[{"name": "secret", "resourceClaimName": "secret-claim"}]),
        {
            "apiVersion": DRA,
            "kind": "ResourceSlice",
            "metadata": {"name": "secret-slice"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "pool": {"name": "secret-node", "generation": 1},
                "nodeName": "secret-node",
                "devices": [
                    {
                        "name": "secret-gpu",
                        "attributes": {"uuid": {"string": "secret"}, "type": {"string": "gpu"}},
                        "allowMultipleAllocations": True,
                        "capacity": {"memory": {"value": "80Gi"}},
                    }
                ],
            },
        },
    ]
    names = Pseudonyms(names_in_policy(POLICY))
    found = [names.rewritten(kept_fields(each, annotations=frozenset())) for each in objects]
    assert "secret" not in json.dumps(found)
    assert sums(world(found)) == sums(world(objects))
    assert sums(world(objects))["vision"][0] > 0
    assert any(each.demand.gpus % ONE_GPU for each in world(objects).pods()), "one has a part of a device"
    allocated = [each for each in found if each["kind"] == "ResourceClaim" and "allocation" in each.get("status", {})]
    (key,) = [ClaimKey("claim", each["metadata"]["namespace"], each["metadata"]["name"]) for each in allocated]
    assert world(found).claims.node_of(key, "another") == names.of("node", "secret-node")


@pytest.mark.parametrize("hash_", ["5d8f", "5784"], ids=["letters", "digits alone"])
def test_a_minimum_is_still_that_of_its_workload(hash_):
    objects = [
        b.node("secret-node", gpus=8),
        *b.replicas("secret-web", 3, hash_=hash_, node="secret-node"),
        b.pod("old", controller=("ReplicaSet", "secret-web-f2"), labels={"pod-template-hash": "f2"}, uid="old"),
        b.autoscaler("secret-web", minimum=2),
    ]
    names = Pseudonyms(names_in_policy(POLICY))
    found = [names.rewritten(kept_fields(each, annotations=frozenset())) for each in objects]
    assert "secret" not in json.dumps(found)
    there, before = world(found).minimums, world(objects).minimums
    [workload], [named] = there.workloads(), before.workloads()
    assert there.of(workload) == before.of(named) == Replicas(2, 4, 3, is_scaled=True)


@pytest.mark.parametrize(
    "key",
    [
        "app.kubernetes.io/instance",
        "batch.kubernetes.io/job-name",
        "statefulset.kubernetes.io/pod-name",
        "kueue.x-k8s.io/queue-name",
        "jobset.sigs.k8s.io/jobset-name",
        keys.SCHEDULER_PLUGINS_GROUP,
    ],
)
def test_a_label_of_kubernetes_that_names_a_workload_is_replaced(key):
    kept = kept_fields(b.pod("p", labels={key: "secret"}), annotations=frozenset())
    assert "secret" not in json.dumps(Pseudonyms(names_in_policy(POLICY)).rewritten(kept))


ODD = ["of customer secret", "secret\n", "2026 secret", [3], {"secret": 1}, None, 3]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_whatever_a_tenant_writes_is_replaced(odd):
    told = (keys.MOVABLE, keys.CHECKPOINTED, keys.EVICT_FOR, keys.SAFE_TO_EVICT, keys.GANG_SIZES[0])
    found = b.pod("p", annotations=dict.fromkeys((*told, *keys.GANG_ANNOTATIONS), odd))
    found["metadata"] |= {"uid": odd, "namespace": odd, "ownerReferences": [{"kind": "Job", "name": odd, "uid": odd}]}
    kept = Pseudonyms(names_in_policy(POLICY)).rewritten(kept_fields(found, annotations=frozenset()))
    assert "secret" not in json.dumps(kept)


def test_what_annotations_tell_is_kept():
    told = {
        keys.GANG: "true",
        keys.MOVABLE: "true",
        keys.CHECKPOINTED: "2026-01-01T00:00:00.5+01:00",
        keys.EVICT_AT: "2026-01-01T00:00:00Z",
        keys.EVICT_FOR: "vision",
        keys.GANG_SIZES[0]: "4",
        keys.SAFE_TO_EVICT: "false",
    }
    kept = kept_fields(b.pod("p", annotations=told), annotations=frozenset())
    assert Pseudonyms(names_in_policy(POLICY)).rewritten(kept)["metadata"]["annotations"] == told


def test_which_autoscalers_there_are_is_kept():
    names = Pseudonyms(names_in_policy(POLICY))
    marks = objects_of(Autoscaler, at=0)
    found = [names.rewritten(kept_fields(each, annotations=frozenset())) for each in marks]
    assert found == marks
    assert world(found).autoscalers == set(Autoscaler)


def test_what_decides_is_kept_under_consistent_names():
    zones = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["secret-rack"]}]}
    objects = [
        b.pod(
            "secret-one",
            namespace="vision-secret",
            volumes=[{"name": "secret", "persistentVolumeClaim": {"claimName": "secret-claim"}}],
        ),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "secret-volume"},
            "spec": {
                "claimRef": {"namespace": "vision-secret", "name": "secret-claim"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [zones]}},
            },
            "status": {"phase": "Bound"},
        },
        b.node("secret-node", labels={"rack": "secret-rack"}),
        {
            "apiVersion": DRA,
            "kind": "ResourceSlice",
            "metadata": {"name": "secret-slice"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "pool": {"name": "secret-pool", "generation": 1},
                "nodeName": "secret-node",
                "devices": [{"name": "secret-gpu"}],
            },
        },
        {
            "apiVersion": DRA,
            "kind": "DeviceTaintRule",
            "metadata": {"name": "secret-rule"},
            "spec": {
                "deviceSelector": {"pool": "secret-pool", "device": "secret-gpu"},
                "taint": {"key": "worn", "value": "secret", "effect": "NoSchedule"},
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "secret-budget", "namespace": "vision-secret"},
            "spec": {"selector": {"matchLabels": {"app": "secret-app"}}},
            "status": {"disruptionsAllowed": 1},
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "secret-range", "namespace": "vision-secret"},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
        },
    ]
    names = Pseudonyms(names_in_policy(POLICY))
    found = [names.rewritten(kept_fields(each, annotations=frozenset())) for each in objects]
    assert "secret" not in json.dumps(found)
    pod, volume, node, offered, rule, *_ = found
    claim = volume["spec"]["claimRef"]
    assert claim["name"] == pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim["namespace"] == pod["metadata"]["namespace"]
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [node["metadata"]["labels"]["rack"]]
    selected = rule["spec"]["deviceSelector"]
    assert selected == {"pool": offered["spec"]["pool"]["name"], "device": offered["spec"]["devices"][0]["name"]}
    (budget,) = [each for each in found if each["kind"] == BUDGETS.kind]
    assert to_disruption(msgspec.convert(budget, BUDGETS.item)).allowed == 1
