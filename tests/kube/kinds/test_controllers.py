"""Controllers by their kind: what an eviction is to them, and paths that a tenant's text cannot escape."""

import pytest

from webhook.core.reclaim.victims import Loss
from webhook.kube.kinds.table import is_retried, loss_of, path_of
from webhook.kube.objects.events import ObjectRef

RS = ObjectRef("ReplicaSet", "team-a", "web-1", "u1", "apps/v1")


@pytest.mark.parametrize(
    ("ref", "want"),
    [
        pytest.param(RS, "/apis/apps/v1/namespaces/team-a/replicasets/web-1", id="a group"),
        pytest.param(ObjectRef("Pod", "n", "p", "u", "v1"), "/api/v1/namespaces/n/pods/p", id="the core"),
        pytest.param(ObjectRef("Notebook", "n", "p", "u", "kubeflow.org/v1"), None, id="a kind that users create"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "apps/v1"), None, id="a kind of another group"),
        pytest.param(
            ObjectRef("Job", "n", "../../../secrets", "u", "batch/v1"), None, id="a name that leaves the namespace"
        ),
        pytest.param(ObjectRef("Job", "n", "..", "u", "batch/v1"), None, id="a name that is the parent directory"),
        pytest.param(ObjectRef("Job", "n", "a?watch=1", "u", "batch/v1"), None, id="a name with a query"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "batch/v1/../.."), None, id="a version that leaves the API"),
        pytest.param(ObjectRef("Job", "n", "j", "u", "batch"), None, id="no version"),
    ],
)
def test_a_path_never_leaves_the_namespace(ref, want):
    assert path_of(ref) == want


@pytest.mark.parametrize(
    ("api", "kind", "labels", "want"),
    [
        ("batch/v1", "Job", {}, Loss.COUNTED),
        ("apps/v1", "ReplicaSet", {}, Loss.COUNTED),
        ("ray.io/v1", "RayCluster", {"ray.io/node-type": "head"}, Loss.FATAL),
        ("ray.io/v1", "RayCluster", {"ray.io/node-type": "worker"}, Loss.HARMLESS),
        ("kubeflow.org/v2beta1", "MPIJob", {}, Loss.FATAL),
        ("argoproj.io/v1alpha1", "Workflow", {}, Loss.FATAL),
        ("example.com/v1", "RayCluster", {"ray.io/node-type": "head"}, Loss.COUNTED),
    ],
)
def test_loss_by_kind(api, kind, labels, want):
    assert loss_of(api, kind, labels) is want


def test_only_controllers_of_kubernetes_itself_are_retried():
    assert is_retried("apps/v1", "DaemonSet")
    assert not is_retried("apps/v1", "Deployment")
    assert not is_retried("example.com/v1", "Job")
