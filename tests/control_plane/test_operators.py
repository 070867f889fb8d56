"""Controllers of other projects create their pods on the control plane."""

import pytest

from tests.control_plane.objects import pod_spec
from tests.control_plane.workbench import gpus_by_node, list_pods, make_nodes, wait_for

pytestmark = pytest.mark.cluster


def running_pods(cluster, namespace):
    return sorted(
        pod["metadata"]["name"] for pod in list_pods(cluster, namespace) if pod["status"].get("phase") == "Running"
    )


def replicas(count, **spec):
    # The operator finds the container to configure by this name.
    template = pod_spec(**spec)
    template["containers"][0]["name"] = "pytorch"
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": template}}


@pytest.mark.usefixtures("training_operator")
def test_a_pytorchjob_gets_its_master_and_workers(cluster, namespace):
    make_nodes(cluster, 2)
    cluster.kubectl.apply(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "bert", "namespace": namespace},
            "spec": {"pytorchReplicaSpecs": {"Master": replicas(1, gpus=1), "Worker": replicas(3, gpus=2)}},
        }
    )
    want = ["bert-master-0", "bert-worker-0", "bert-worker-1", "bert-worker-2"]
    wait_for(cluster, lambda: running_pods(cluster, namespace) == want, what="one master and three workers running")
    assert sum(gpus_by_node(cluster).values()) == 7


@pytest.mark.usefixtures("jobset")
def test_a_jobset_gets_its_pods(cluster, namespace):
    make_nodes(cluster, 2)
    template = {"spec": pod_spec(gpus=2, restartPolicy="Never")}
    job = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    cluster.kubectl.apply(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "sweep", "namespace": namespace},
            "spec": {"replicatedJobs": [{"name": "trial", "replicas": 2, "template": job}]},
        }
    )
    wait_for(cluster, lambda: len(running_pods(cluster, namespace)) == 4, what="four pods running")
    assert sum(gpus_by_node(cluster).values()) == 8
    assert all(name.startswith("sweep-trial-") for name in running_pods(cluster, namespace))


@pytest.mark.usefixtures("jobset")
def test_the_webhooks_of_jobset_are_called(cluster, namespace):
    refused = cluster.kubectl.run(
        "create", "-f", "-", "--dry-run=server", stdin=INVALID_JOBSET.format(namespace=namespace)
    )
    assert refused.returncode != 0
    assert "'missing' does not appear in .spec.ReplicatedJobs" in refused.stderr


# Only JobSet itself knows that a success policy must name one of its jobs.
INVALID_JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: invalid, namespace: {namespace}}}
spec:
  successPolicy: {{operator: All, targetReplicatedJobs: [missing]}}
  replicatedJobs:
    - name: trial
      template:
        spec:
          template:
            spec: {{restartPolicy: Never, containers: [{{name: main, image: example.invalid/train:1}}]}}
"""
