"""The minimums that elastic kinds state, and what their webhook copies of them to the pod templates."""

import pytest

from webhook.kube.kinds.model import Budget
from webhook.kube.objects import keys
from webhook.kube.workloads.gangs import gang_marks
from webhook.kube.workloads.unknown_kinds import elastic_minimum

TEMPLATE = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
WORKER = ("spec", "pytorchReplicaSpecs", "Worker", "template")


def pytorch(least, **annotations):
    spec = {"elasticPolicy": {"minReplicas": least}, "pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"annotations": annotations},
        "spec": spec,
    }


def cluster(*groups, is_scaled=True):
    made = [{"template": TEMPLATE, **group} for group in groups]
    head = {"template": TEMPLATE}
    return {"enableInTreeAutoscaling": is_scaled, "headGroupSpec": head, "workerGroupSpecs": made}


def ray(kind, spec):
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {}, "spec": spec}


def copied(document):
    """The minimums that are copied, by the path of the template."""
    found = {}
    for operation in gang_marks(document, Budget()):
        value = operation["value"]
        while isinstance(value, dict):
            value = value.get("annotations") or value.get(keys.MINIMUM)
        found[operation["path"].partition("/metadata")[0]] = value
    return found


def test_the_workers_of_an_elastic_pytorch_job_get_its_minimum():
    assert copied(pytorch(2)) == {"/spec/pytorchReplicaSpecs/Worker/template": "2"}
    assert copied(pytorch(None)) == {}


def test_the_annotation_goes_before_what_the_kind_states():
    assert copied(pytorch(2, **{keys.MINIMUM: "3"})) == {"/spec/pytorchReplicaSpecs/Worker/template": "3"}


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        ("RayCluster", lambda spec: spec),
        ("RayJob", lambda spec: {"rayClusterSpec": spec}),
        ("RayService", lambda spec: {"rayClusterConfig": spec}),
    ],
)
def test_each_group_of_an_autoscaled_ray_cluster_gets_its_own(kind, wrap):
    found = copied(ray(kind, wrap(cluster({"minReplicas": 1}, {"minReplicas": 3}, {}))))
    assert {path[-10:-9]: value for path, value in found.items()} == {"0": "1", "1": "3", "2": "0"}


@pytest.mark.parametrize(
    "spec",
    [
        cluster({"minReplicas": 1}, is_scaled=False),
        cluster({"minReplicas": 1, "numOfHosts": 4}),
        cluster({"minReplicas": "many"}),
        {"workerGroupSpecs": "none", "enableInTreeAutoscaling": True},
    ],
    ids=["no autoscaler", "groups of several hosts", "no number", "no groups"],
)
def test_other_ray_clusters_get_none(spec):
    assert copied(ray("RayCluster", spec)) == {}


@pytest.mark.parametrize("least", [-1, True, "2", None, 1.5, {}])
def test_what_is_no_number_states_nothing(least):
    assert elastic_minimum(pytorch(least), WORKER) is None


def test_a_deployments_annotation_is_copied_to_its_template():
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"annotations": {keys.MINIMUM: "2"}},
        "spec": {"template": TEMPLATE},
    }
    assert copied(made) == {"/spec/template": "2"}


def test_the_tasks_of_a_job_of_volcano_get_its_minimum():
    tasks = [{"name": name, "template": TEMPLATE} for name in ("driver", "worker")]
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"minAvailable": 3, "tasks": tasks}}
    assert copied(job) == {f"/spec/tasks/{number}/template": "3" for number in range(2)}
    for least in (0, -1, "3", None):
        job["spec"]["minAvailable"] = least
        assert copied(job) == {}
