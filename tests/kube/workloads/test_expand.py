"""Expansion of unknown kinds, and properties that hold for every kind."""

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import MAX_PODS, Unknown, Workload
from webhook.kube.kinds.table import BUILT_IN, kind_table
from webhook.kube.workloads.expand import expand, flattened

KINDS = kind_table()
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


def manifest(api_version, kind, spec, **metadata):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "it", **metadata}, "spec": spec}


def deployment(**spec):
    return manifest("apps/v1", "Deployment", {"template": TEMPLATE, **spec})


def own(*pods, group="ml.example.com", kind="Run"):
    return kind_table((WorkloadKind(group, kind, "runs", pods),))


@pytest.mark.parametrize(
    "document",
    [
        manifest("v1", "Service", {"ports": []}),
        manifest("v1", "ConfigMap", {}),
        manifest("v1", "LimitRange", {"limits": [{"default": {"nvidia.com/gpu": 1}}]}),
        manifest("v1", "PodTemplate", {"template": TEMPLATE}),
        manifest("rbac.authorization.k8s.io/v1", "Role", {}),
        manifest("policy/v1", "PodDisruptionBudget", {}),
        manifest("kueue.x-k8s.io/v1beta2", "Workload", {"podSets": [{"count": 3, "template": TEMPLATE}]}),
        manifest("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", {"template": TEMPLATE}),
        manifest("karpenter.sh/v1", "NodePool", {"limits": {"nvidia.com/gpu": 8}}),
        manifest("kueue.x-k8s.io/v1beta2", "ClusterQueue", {"resourceGroups": [{"flavors": []}]}),
        manifest("monitoring.coreos.com/v1", "Prometheus", {"resources": {"requests": {"memory": "1Gi"}}}),
    ],
    ids=lambda document: document["kind"],
)
def test_kinds_without_pods_are_none(document):
    assert expand(document, kinds=KINDS) is None


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"template": TEMPLATE}, "asks for GPUs or other devices at spec.template.spec.containers[0].resources"),
        ({"tasks": [{"containers": [{"name": "a"}]}]}, "has containers at spec.tasks[0].containers"),
        ({"templates": [{"container": {"image": "train:1"}}]}, "has containers at spec.templates[0].container"),
    ],
)
def test_an_unknown_kind_with_containers_is_reported(spec, where):
    found = expand(manifest("ml.example.com/v1", "Run", spec), kinds=KINDS)
    assert isinstance(found, Unknown)
    assert f"kind Run of ml.example.com is not known, and it {where}" in found.reason


@pytest.mark.parametrize("document", [{}, {"apiVersion": "v1"}, {"kind": "Pod"}, {"image": {"tag": "1"}}])
def test_malformed_objects_are_unknown(document):
    assert isinstance(expand(document, kinds=KINDS), Unknown)


def test_all_versions_of_a_kind_are_read_alike():
    found = expand(manifest("kubeflow.org/v9", "Notebook", {"template": TEMPLATE}), kinds=KINDS)
    assert [pod_set.count for pod_set in found.pod_sets] == [1]


def test_the_same_kind_in_another_group_is_another_kind():
    found = expand(manifest("example.com/v1", "Deployment", {"template": TEMPLATE}), kinds=KINDS)
    assert isinstance(found, Unknown)


def test_nested_lists_are_flattened():
    inner = {"apiVersion": "v1", "kind": "List", "items": [deployment(), None]}
    stream = [None, {"kind": "DeploymentList", "items": [deployment(), inner]}, deployment(), "text"]
    assert [found["kind"] for found in flattened(stream)] == ["Deployment"] * 3


def test_the_default_namespace_is_used():
    found = expand(deployment(), kinds=KINDS, namespace="vision")
    assert found.namespace == found.pod_sets[0].template["metadata"]["namespace"] == "vision"


def test_a_generate_name_is_used_as_the_name():
    document = deployment()
    document["metadata"] = {"generateName": "train-"}
    assert expand(document, kinds=KINDS).name == "train"


def test_a_bare_pod_keeps_its_name_and_its_owners():
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": owners}, **TEMPLATE}
    [pod_set] = expand(pod, kinds=KINDS).pod_sets
    metadata = pod_set.template["metadata"]
    assert (metadata["name"], metadata["ownerReferences"]) == ("p", owners)


def test_kinds_in_the_policy_are_read_by_their_paths():
    head = PodPath("spec.head", role="head")
    workers = PodPath("template", ("replicas", "hosts"), each="spec.workers", default=1)
    spec = {
        "head": TEMPLATE["spec"],
        "workers": {"a100": {"replicas": 3, "hosts": 2, "template": TEMPLATE}, "t4": {"template": TEMPLATE}},
    }
    found = expand(manifest("ml.example.com/v1", "Run", spec), kinds=own(head, workers))
    assert {pod_set.role: pod_set.count for pod_set in found.pod_sets} == {"head": 1, "a100": 6, "t4": 1}
    [owner] = found.pod_sets[1].template["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"]) == ("ml.example.com/v1", "Run")


def test_a_count_without_a_default_is_unknown():
    kinds = own(PodPath("template", ("replicas",), each="spec.workers"))
    found = expand(manifest("ml.example.com/v1", "Run", {"workers": [{"template": TEMPLATE}]}), kinds=kinds)
    [pod_set] = found.pod_sets
    assert (pod_set.count, pod_set.problem) == (None, "spec.workers[0].replicas is not set")


def test_the_policy_may_override_a_built_in_kind():
    kinds = own(PodPath("spec.template", ("spec.copies",)), group="apps", kind="Deployment")
    found = expand(deployment(copies=7, replicas=1), kinds=kinds)
    assert found.pod_sets[0].count == 7


def test_an_autoscaler_of_another_object_changes_nothing():
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"name": "other"}},
    }
    assert expand(deployment(), kinds=KINDS, related=Related.of([scaler])).pod_sets[0].count == 1


WORDS = re.findall(
    r"\S+",
    """
    spec template metadata containers replicas size parallelism completions replicatedJobs workerGroupSpecs
    headGroupSpec leaderWorkerTemplate workerTemplate pytorchReplicaSpecs mpiReplicaSpecs Worker Launcher predictor
    model resources limits requests nvidia.com/gpu rayClusterSpec rayClusterConfig jobTemplate driver executor gpu
    memory predictors componentSpecs serverConfig podSpec tolerations sidecars annotations labels tasks name groupName
    runtimeRef trainer numNodes workerSpec prefill maxReplicas minReplicas enableInTreeAutoscaling elasticPolicy metrics
    """,
)
scalars = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False) | st.text(max_size=4)
trees = st.recursive(
    scalars | st.just([{"name": "main"}]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(WORDS), below, max_size=4),
    max_leaves=25,
)
rows = st.sampled_from([row for row in BUILT_IN if row.makes_pods])


@given(rows, st.dictionaries(st.sampled_from(WORDS), trees, max_size=5), st.lists(trees, max_size=2))
@examples(100)
def test_a_malformed_manifest_raises_nothing_and_is_not_changed(row, spec, others):
    document = manifest(f"{row.kind.group}/{row.versions[0]}".lstrip("/"), row.kind.kind, spec)
    before = copy.deepcopy(document)
    related = Related.of([other for other in others if isinstance(other, dict)])
    found = expand(document, kinds=KINDS, related=related)
    assert isinstance(found, Workload)
    assert document == before
    for pod_set in found.pod_sets:
        assert pod_set.problem is not None or (pod_set.count is not None and pod_set.template)
        assert pod_set.count is None or pod_set.count >= 0


counts = st.integers(0, 50)


@given(st.lists(st.tuples(counts, counts, st.none() | counts), min_size=1, max_size=4))
@examples()
def test_a_job_set_counts_each_replica_of_each_job(jobs):
    spec = [
        {
            "name": f"job-{number}",
            "replicas": replicas,
            "template": {"spec": {"parallelism": parallel, "completions": needed, "template": TEMPLATE}},
        }
        for number, (replicas, parallel, needed) in enumerate(jobs)
    ]
    found = expand(manifest("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": spec}), kinds=KINDS)
    want = [replicas * (parallel if needed is None else min(parallel, needed)) for replicas, parallel, needed in jobs]
    assert [pod_set.count for pod_set in found.pod_sets] == want


@given(st.integers(0, MAX_PODS), st.none() | st.integers(0, MAX_PODS))
@examples()
def test_a_kind_described_in_the_policy_counts_like_the_built_in_one(replicas, limit):
    described = own(PodPath("spec.template", ("spec.replicas",), default=1), group="apps", kind="Deployment")
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "it"}, "maxReplicas": limit},
    }
    related = Related.of([scaler] if limit is not None else [])
    built_in, own_kind = (
        expand(deployment(replicas=replicas), kinds=kinds, related=related).pod_sets[0] for kinds in (KINDS, described)
    )
    assert built_in.count == own_kind.count == max(replicas, limit or 0)


@pytest.mark.parametrize(
    ("said", "on_pods", "want"),
    [
        ("true", {}, 0),
        ("true", {"fairgate.dev/gang": "true"}, 0),
        ("true", {"fairgate.dev/gang": "false"}, 1),
        ("false", {}, 0),
    ],
    ids=["on the workload, from where it is copied", "on the pods too", "not on the pods", "no gang"],
)
def test_the_annotation_of_a_gang_belongs_on_the_pods(said, on_pods, want):
    template = {**TEMPLATE, "metadata": {"annotations": on_pods}}
    job = manifest("batch/v1", "Job", {"template": template}, annotations={"fairgate.dev/gang": said})
    found = expand(job, kinds=KINDS).warnings
    assert len(found) == want
    assert all("put it on the pod template too" in text for text in found)
