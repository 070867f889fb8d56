"""A policy compared with a world: each warning, with its line."""

import json

import pytest

from tests import builders as b
from webhook.core.model.node import Autoscaler
from webhook.core.world.world import World
from webhook.kube.nodes.nodes import objects_of
from webhook.kube.world_file.world_file import fill_world
from webhook.policy.build import build
from webhook.policy.lint import lint
from webhook.policy.watch import read_draft

HEAD = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
GOOD_TEAM = "teams: [{name: v, namespaces: [vision]}]\n"


def namespace(name, **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


NODES = [b.node("a", model="A100", labels={"at": "x"}), b.node("b", model="T4", gpus=4)]
NAMESPACES = [namespace("vision", dept="v"), namespace("nlp")]


def warnings(text, *objects, nodes=NODES, namespaces=NAMESPACES, about_taints=False):
    """List the warnings; those of nodes without taints, as most here are, only where a test is about them."""
    made = read_draft({"p.yaml": (HEAD + text).encode()}, origin="p")
    policy = build(made)
    world = World(policy)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *namespaces, *objects]})
    ended = [pod.namespace for pod in fill_world(world, listed, name="w").ended]
    found = [str(problem) for problem in lint(made, policy, world, origin="p", ended=ended)]
    return [each for each in found if about_taints or "kubectl taint" not in each]


GTX = "nvidia.com/gtx-1080-ti"
UNKNOWN = f"resources: {GTX} looks like a GPU, is offered by a, and policy does not count it"
NAMED = "name it in resources with gpus or perGpu (gpus: 0 if it is none)"

CASES = {
    "no warnings": (
        "teams: [{name: v, namespaces: [vision, 'n*'], gpus: {guaranteed: 14, limit: 14}, perPod: {limit: 10}}]",
        [],
    ),
    "a level of domains that no node has": (
        GOOD_TEAM + "topology: {levels: [row, at]}",
        ["topology.levels[0]: no node has label row"],
    ),
    "unlimited limits": ("teams: [{name: v, namespaces: [vision]}]", []),
    "a share that cannot be met": (
        "teams: [{name: v, namespaces: [vision], gpus: {guaranteed: 20}}]",
        [
            "teams[0].gpus.guaranteed: all teams together are guaranteed 20 GPUs, but the nodes have 14",
            "teams[0].gpus.guaranteed: cannot be met: all nodes together have 14 GPUs",
        ],
    ),
    "shares that exceed the nodes together": (
        "teams: [{name: v, namespaces: [vision], gpus: {guaranteed: 9}}, "
        "{name: n, namespaces: [nlp], gpus: {guaranteed: 10}}]",
        ["teams[1].gpus.guaranteed: all teams together are guaranteed 19 GPUs, but the nodes have 14"],
    ),
    "limits that are never reached": (
        "teams: [{name: v, namespaces: [vision], gpus: {limit: 12}, perPod: {limit: 11}, perUser: {limit: 13}}]",
        [
            "teams[0].perPod.limit: is never reached: the largest node has 10 GPUs",
            "teams[0].perUser.limit: is never reached: the team's limit is 12",
        ],
    ),
    "a limit beyond all nodes": (
        "teams: [{name: v, namespaces: [vision], gpus: {limit: 15}}]",
        ["teams[0].gpus.limit: is never reached: all nodes together have 14 GPUs"],
    ),
    "departments whose shares exceed the nodes together, whatever their teams have": (
        "teams: [{name: v, namespaces: [vision], department: d}, {name: n, namespaces: [nlp], gpus: {guaranteed: 5}}]\n"
        "departments: [{name: d, parent: top, gpus: {guaranteed: 9}}, {name: top, gpus: {guaranteed: 10}}]",
        ["teams[1].gpus.guaranteed: all teams together are guaranteed 15 GPUs, but the nodes have 14"],
    ),
    "missing namespaces": (
        "teams: [{name: v, namespaces: [visoin, 'x-*']}, {name: n, namespaceSelector: {matchLabels: {dept: w}}}]",
        [
            "teams[0].namespaces[0]: no namespace matches visoin",
            "teams[0].namespaces[1]: no namespace matches x-*",
            "teams[1].namespaceSelector: selects no namespace",
        ],
    ),
    "models": (
        "teams: [{name: v, namespaces: [vision], models: {H100: {limit: 1}, A100: {guaranteed: 11}}}]",
        [
            "teams[0].models.A100.guaranteed: all teams together are guaranteed 11 GPUs, but the nodes have 10",
            "teams[0].models.A100.guaranteed: cannot be met: all nodes together have 10 GPUs of this model",
            "teams[0].models.H100: no node has this GPU model",
        ],
    ),
    "resources": (
        "teams: [{name: v, namespaces: [vision]}]\nresources: {nvidia.com/mig-1g.5gb: {gpus: 1/7}}",
        ["resources[nvidia.com/mig-1g.5gb]: no node has this resource"],
    ),
    "labels that no node has": (
        GOOD_TEAM + "pools: [{name: all}, {name: p, nodeSelector: {at: y}, affinity: [{key: m, operator: Exists}]}]",
        [
            "pools[1].affinity: no node matches m Exists",
            "pools[1].name: this pool has no nodes",
            "pools[1].nodeSelector.at: no node has label at=y",
        ],
    ),
    "a pool without users": (
        "teams: [{name: v, namespaces: [vision]}, {name: n, namespaces: [gone]}]\npools: [{name: all}, "
        "{name: p, teams: [n]}]",
        [
            "pools[1].name: no pod can use this pool: none of its teams has a namespace",
            "teams[1].namespaces[0]: no namespace matches gone",
        ],
    ),
    "nodes outside of all pools": (
        GOOD_TEAM + "pools: [{name: p, nodeSelector: {at: x}}]",
        ["pools: GPU nodes that are in no pool, so no pod is placed there: b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_policy_against_two_nodes_and_two_namespaces(name):
    text, want = CASES[name]
    assert sorted(line.partition(": ")[2] for line in warnings(text)) == want


def test_a_warning_has_its_line():
    assert warnings("teams:\n  - name: v\n    namespaces:\n      - vision\n      - gone")[0].startswith("p.yaml:7: ")


def test_pods_without_a_team():
    pods = [b.pod("p1", namespace="stray", node="a"), b.pod("p2", namespace="stray", node="a")]
    assert warnings(GOOD_TEAM, *pods) == [
        "p: teams: namespace stray has 2 pods with GPUs but no team: new pods are refused"
    ]
    assert warnings(f"{GOOD_TEAM}exempt: {{namespaces: [stray]}}", *pods) == []
    assert warnings(f"{GOOD_TEAM}defaults: {{unknownTeam: preemptible}}", *pods) == []


def test_pods_without_a_team_that_have_ended():
    """Such as a validator's: the next one would be refused, and nothing of it runs."""
    ended = b.pod("ended", namespace="stray", node="a", phase="Succeeded")
    none = b.pod("no-gpus", namespace="stray", node="a", gpus=None, phase="Failed")
    text = "p: teams: namespace stray has {} with GPUs{} but no team: new pods are refused"
    assert warnings(GOOD_TEAM, ended, none) == [text.format("1 pod", " (all of them ended)")]
    running = b.pod("runs", namespace="stray", node="a")
    assert warnings(GOOD_TEAM, ended, running) == [text.format("2 pods", " (1 of them ended)")]
    assert warnings(GOOD_TEAM, none) == []
    assert warnings(GOOD_TEAM, b.pod("ended", namespace="gpu-operator", node="a", phase="Succeeded")) == []


def test_taints_that_a_pool_does_not_tolerate():
    tainted = [b.node("a", taints=[{"key": "gpu", "effect": "NoSchedule"}])]
    text = GOOD_TEAM + "pools: [{name: p}]"
    assert warnings(text, nodes=tainted) == [
        "p.yaml:4: pools[0].name: does not tolerate the taints of its nodes: gpu:NoSchedule"
    ]
    text = GOOD_TEAM + "pools: [{name: p, tolerations: [{key: gpu, operator: Exists}]}]"
    assert warnings(text, nodes=tainted) == []


def test_without_namespaces_they_are_not_checked():
    assert warnings("teams: [{name: v, namespaces: [gone]}]\npools: [{name: p, teams: [v]}]", namespaces=[]) == []


OPEN = "p: pools: GPU nodes without a taint, on which pods without GPUs can use up cpu and memory: "


def taints(text, *nodes):
    return [each for each in warnings(GOOD_TEAM + text, nodes=nodes, about_taints=True) if "kubectl taint" in each]


@pytest.mark.parametrize(
    "closed",
    [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "gpu", "value": "yes", "effect": "NoExecute"}],
)
def test_tainted_gpu_nodes_and_nodes_without_gpus_are_not_reported(closed):
    assert taints("", b.node("a", taints=[closed]), b.node("cpu", gpus=None)) == []


@pytest.mark.parametrize(
    "passing",
    [
        {"key": "nvidia.com/gpu", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "fairgate.dev/held", "effect": "NoSchedule"},
    ],
)
def test_a_temporary_taint_does_not_count(passing):
    command = "kubectl taint nodes a nvidia.com/gpu=present:NoSchedule"
    want = f"a; add a toleration of nvidia.com/gpu to their pool, then {command}"
    assert taints("", b.node("a", taints=[passing])) == [f"{OPEN}{want}"]


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        ("key: dedicated, value: gpu, effect: NoSchedule", "dedicated=gpu:NoSchedule"),
        ("key: nvidia.com/gpu, operator: Exists", "nvidia.com/gpu=present:NoSchedule"),
        ("key: gpu, operator: Exists, effect: NoExecute", None),
    ],
)
def test_a_taint_that_the_nodes_pool_tolerates_is_preferred(toleration, want):
    pool = f"pools: [{{name: p, nodeSelector: {{at: x}}, tolerations: [{{{toleration}}}]}}]\n"
    first = "" if want else "add a toleration of nvidia.com/gpu to their pool, then "
    command = f"{first}kubectl taint nodes a {want or 'nvidia.com/gpu=present:NoSchedule'}"
    assert taints(pool, b.node("a", labels={"at": "x"})) == [f"{OPEN}a; {command}"]


def test_many_nodes_are_selected_by_a_label_that_only_they_have():
    many = [b.node(f"n{i}", labels={"at": "x", "gpu": "yes"}) for i in range(7)]
    others = [b.node("cpu", gpus=None, labels={"at": "x"})]
    (line,) = taints("", *many, *others)
    assert "n0, n1, n2, n3, n4 and 2 more; " in line
    assert line.endswith("kubectl taint nodes -l gpu=yes nvidia.com/gpu=present:NoSchedule")
    (line,) = taints("", *[b.node(f"n{i}") for i in range(6)], b.node("cpu", gpus=None))
    assert line.endswith("kubectl taint nodes n0 n1 n2 n3 n4 n5 nvidia.com/gpu=present:NoSchedule")


def test_very_many_nodes_are_selected_by_few_values_of_a_label_or_one_by_one():
    many = [b.node(f"n{i}", labels={"kind": f"k{i % 3}"}) for i in range(30)]
    (line,) = taints("", *many, b.node("cpu", gpus=None, labels={"kind": "cpu"}))
    assert line.endswith("kubectl taint nodes -l 'kind in (k0,k1,k2)' nvidia.com/gpu=present:NoSchedule")
    (line,) = taints("", *many, b.node("cpu", gpus=None, labels={"kind": "k0"}))
    assert line.endswith("for each of them kubectl taint nodes NODE nvidia.com/gpu=present:NoSchedule")


def test_a_match_by_the_absence_of_a_label_selects_gpu_pods():
    def found(expressions, selector):
        return warnings(
            GOOD_TEAM + f"pools: [{{name: p, nodeSelector: {selector}, "
            f"match: {{podSelector: {{matchExpressions: {expressions}}}}}}}, {{name: q, nodeSelector: {{at: x}}}}]",
            b.pod("train", namespace="vision", uid="u", node="a"),
            nodes=[b.node("a", labels={"at": "x"}), b.node("cpu", gpus=None, labels={"at": "y"})],
        )

    absent = "[{key: team, operator: DoesNotExist}, {key: app, operator: NotIn, values: [kafka]}]"
    text = "select by a label that only the pods of this pool have: matchLabels, In or Exists"
    which = "p.yaml:4: pools[0].match.podSelector: selects every GPU pod without label app or team (1 in this world)"
    assert f"{which}; such pods can run only in this pool, whose nodes have no GPUs; {text}" in found(absent, "{at: y}")
    assert f"{which}; such pods can run only in this pool; {text}" in found(absent, "{at: x}")
    present = "[{key: team, operator: Exists}, {key: app, operator: NotIn, values: [kafka]}]"
    assert not [each for each in found(present, "{at: y}") if "podSelector" in each]


def test_devices_that_a_node_has_and_does_not_offer_now_count_for_shares():
    restarts = b.node("a", gpus=0)
    restarts["status"]["capacity"] = {**restarts["status"]["allocatable"], b.GPU: "8"}
    share = "teams: [{name: v, namespaces: [vision, nlp], gpus: {guaranteed: 8, limit: 8}}]"
    assert warnings(share, nodes=[restarts]) == []


@pytest.mark.parametrize(
    ("policy", "pods", "want"),
    [
        ("", [], f"{UNKNOWN}: pods that ask for it are refused; {NAMED}"),
        (
            "defaults: {unknownGpu: ignore}",
            [b.pod("p", resource=GTX, gpus=3, node="a")],
            f"{UNKNOWN}: pods that ask for it count nothing (unknownGpu: ignore); 1 pod here has 3, uncounted; {NAMED}",
        ),
        (f"resources: {{{GTX}: {{gpus: 0}}}}", [], ""),
        (f"resources: {{{GTX}: {{gpus: 1}}}}", [], ""),
    ],
    ids=["refused", "ignored, and held by a pod", "none, says policy", "one, says policy"],
)
def test_devices_in_the_domain_of_a_gpu_vendor_are_named_until_policy_names_them(policy, pods, want):
    """Of the same domain, network devices are not named."""
    offering = b.node("a", resource=GTX, gpus=3)
    offering["status"]["allocatable"]["nvidia.com/rdma_vf"] = "8"
    found = warnings(f"{GOOD_TEAM}{policy}\n", *pods, nodes=[offering, b.node("b")])
    assert [each for each in found if "looks like a GPU" in each] == ([f"p: {want}"] if want else [])


@pytest.mark.parametrize(
    ("policy", "replicas", "is_named"),
    [("", "12", True), ("", "1", False), (f"resources: {{{b.GPU}: {{perReplica: true}}}}", "12", False)],
    ids=["each counts a GPU", "whole GPUs", "counted by replicas"],
)
def test_gpus_that_are_offered_as_several_are_named_until_policy_counts_by_replicas(policy, replicas, is_named):
    sliced = b.node("a", gpus=12, labels={"nvidia.com/gpu.replicas": replicas})
    found = [each for each in warnings(f"{GOOD_TEAM}{policy}\n", nodes=[sliced]) if "offered as" in each]
    want = "p: resources: one GPU is offered as 12 pieces of nvidia.com/gpu by a (label nvidia.com/gpu.replicas), each"
    assert [each.startswith(want) for each in found] == [True] * is_named


def test_shares_are_compared_with_gpus_not_with_their_replicas():
    counted = f"resources: {{{b.GPU}: {{perReplica: true}}}}\n"
    team = "teams: [{name: v, namespaces: [vision, nlp], gpus: {guaranteed: 2}}]\n"
    sliced = b.node("a", gpus=12, labels={"nvidia.com/gpu.replicas": "12"})
    assert "teams[0].gpus.guaranteed: cannot be met: all nodes together have 1 GPU" in "\n".join(
        warnings(team + counted, nodes=[sliced])
    )


@pytest.mark.parametrize(("count", "want"), [(5, 5), (6, 1)])
def test_many_namespaces_without_a_team_are_one_warning(count, want):
    pods = [b.pod(f"p{i}", namespace=f"ns{i}", uid=f"u{i}", node="a") for i in range(count)]
    found = [each for each in warnings(GOOD_TEAM, *pods) if "no team" in each]
    assert len(found) == want
    names = "ns0, ns1, ns2, ns3, ns4 and 1 more"
    assert count == 5 or found == [
        f"p: teams: 6 namespaces have 6 pods with GPUs but no team, so new pods are refused: {names}"
    ]


def test_a_pool_that_is_said_not_to_grow_although_an_autoscaler_owns_its_nodes_is_named():
    brought = b.node("a", labels={"karpenter.sh/nodepool": "cloud", "at": "x"})
    pools = "pools: [{name: p, nodeSelector: {at: x}, autoscaled: %s}]\n"
    found = warnings(GOOD_TEAM + pools % "false", *objects_of({Autoscaler.KARPENTER}, at=0), nodes=[brought])
    (line,) = [each for each in found if "autoscaled" in each]
    assert line.startswith("p.yaml:4: pools[0].autoscaled: is false, although Karpenter owns 1 GPU node of the pool")
    found = warnings(GOOD_TEAM + pools % "true", *objects_of({Autoscaler.KARPENTER}, at=0), nodes=[brought])
    assert not any("autoscaled" in each for each in found)


def test_without_pools_the_cluster_is_named_whose_node_groups_are_unknown():
    found = warnings(GOOD_TEAM, *objects_of({Autoscaler.CLUSTER_AUTOSCALER}, at=0))
    assert any(each.startswith("p: pools: autoscaled is not set, Cluster Autoscaler runs") for each in found)
