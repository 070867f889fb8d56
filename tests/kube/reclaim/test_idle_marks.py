"""What is written on pods and Notebooks."""

import json

import pytest

from webhook.kube.nodes.holds import idle_patch, notebook_path, stop_patch
from webhook.kube.objects.events import ObjectRef

NOTEBOOK = ObjectRef("Notebook", "team-a", "nb", "u1", "kubeflow.org/v1")


@pytest.mark.parametrize(("since", "want"), [(0, "1970-01-01T00:00:00Z"), (None, None)], ids=["idle", "used"])
def test_a_mark_is_of_one_pod(since, want):
    metadata = json.loads(idle_patch("u1", since=since))["metadata"]
    assert metadata == {"uid": "u1", "annotations": {"fairgate.dev/idle-since": want}}


def test_a_notebook_is_stopped_as_by_its_culler():
    assert notebook_path(NOTEBOOK) == "/apis/kubeflow.org/v1/namespaces/team-a/notebooks/nb"
    metadata = json.loads(stop_patch(NOTEBOOK, at=0))["metadata"]
    assert metadata == {"uid": "u1", "annotations": {"kubeflow-resource-stopped": "1970-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    "ref",
    [
        ObjectRef("Notebook", "team-a", "nb", "u1", "example.com/v1"),
        ObjectRef("StatefulSet", "team-a", "nb", "u1", "apps/v1"),
        ObjectRef("Notebook", "team-a", "../../../nodes/n0", "u1", "kubeflow.org/v1"),
        ObjectRef("Notebook", "team-a", "nb", "u1", "kubeflow.org/v1/../.."),
    ],
    ids=["another group", "another kind", "a name that leaves its path", "a version that leaves its path"],
)
def test_nothing_else_is_stopped(ref):
    assert notebook_path(ref) is None
