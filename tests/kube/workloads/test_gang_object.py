"""Where the object is that describes a gang: always in the namespace of its pods."""

import msgspec
import pytest

from tests import builders
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.pod.pods import to_pod
from webhook.kube.workloads.gangs import gang_object

ASKED = {"fairgate.dev/gang": "true"}


def read(**more):
    found = msgspec.json.decode(msgspec.json.encode(builders.pod(**more)), type=objects.Pod)
    pod = to_pod(found, namespace="vision", weights=BUILT_IN_RESOURCES)
    return gang_object(pod, pod.gang.id)


@pytest.mark.parametrize(
    ("more", "want"),
    [
        (
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}},
            ["/apis/jobset.x-k8s.io/v1alpha2/namespaces/vision/jobsets/js"],
        ),
        ({"labels": {"ray.io/cluster": "r"}}, ["/apis/ray.io/v1/namespaces/vision/rayclusters/r"]),
        (
            {"labels": {"leaderworkerset.sigs.k8s.io/group-key": "k", "leaderworkerset.sigs.k8s.io/name": "llm"}},
            ["/apis/leaderworkerset.x-k8s.io/v1/namespaces/vision/leaderworkersets/llm"],
        ),
        (
            {"labels": {"training.kubeflow.org/job-name": "bert"}, "controller": ("PyTorchJob", "bert")},
            ["/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs/bert"],
        ),
        (
            {"labels": {"training.kubeflow.org/job-name": "mpi"}, "controller": ("Job", "mpi-launcher")},
            [f"/apis/kubeflow.org/{version}/namespaces/vision/mpijobs/mpi" for version in ("v2beta1", "v1")],
        ),
        (
            {"annotations": {"scheduling.k8s.io/group-name": "v"}},
            ["/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/v"],
        ),
        (
            {"labels": {"scheduling.x-k8s.io/pod-group": "s"}},
            ["/apis/scheduling.x-k8s.io/v1alpha1/namespaces/vision/podgroups/s"],
        ),
        (
            {"schedulingGroup": {"podGroupName": "core"}},
            ["/apis/scheduling.k8s.io/v1beta1/namespaces/vision/podgroups/core"],
        ),
        ({"annotations": ASKED, "controller": ("Job", "j")}, ["/apis/batch/v1/namespaces/vision/jobs/j"]),
        (
            {"annotations": ASKED, "controller": ("ReplicationController", "rc")},
            ["/api/v1/namespaces/vision/replicationcontrollers/rc"],
        ),
    ],
)
def test_the_marker_of_a_pod_names_its_object(more, want):
    assert list(read(**more).paths) == want


def test_by_annotation_it_is_the_gang_of_one_controller():
    assert read(annotations=ASKED, controller=("Job", "j")).uid == "uid-of-j"
    assert read(labels={"ray.io/cluster": "r"}).uid == ""


@pytest.mark.parametrize(
    "more",
    [
        {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
        {"labels": {"training.kubeflow.org/job-name": "bert"}},
        {"labels": {"training.kubeflow.org/job-name": "bert"}, "controller": ("Workflow", "w")},
        {"labels": {"leaderworkerset.sigs.k8s.io/group-key": "k"}},
        {"labels": {"ray.io/cluster": "../../../../api/v1/namespaces/other/secrets/s"}},
        {"annotations": {"scheduling.k8s.io/group-name": ".."}},
        {"annotations": {"scheduling.k8s.io/group-name": "a/../../b?x=y"}},
        {"annotations": ASKED, "controller": ("Workflow", "w")},
    ],
)
def test_what_names_no_object_of_its_own_namespace_is_not_read(more):
    assert read(**more) is None
