"""KIND/NAME as kubectl reads it, and everything else, which is a path."""

import pytest

from webhook.cli.explain.reclaim import read_target
from webhook.core.model.policy import WorkloadKind
from webhook.kube.kinds.table import kind_table

KINDS = kind_table((WorkloadKind("acme.io", "Train", "trains"),))


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("pod/a", ("", "pods")),
        ("po/a", ("", "pods")),
        ("Pod/a", ("", "pods")),
        ("job/a", ("batch", "jobs")),
        ("jobs.batch/a", ("batch", "jobs")),
        ("job.batch.volcano.sh/a", ("batch.volcano.sh", "jobs")),
        ("deploy/a", ("apps", "deployments")),
        ("deployment.apps/a", ("apps", "deployments")),
        ("sts/a", ("apps", "statefulsets")),
        ("pytorchjob/a", ("kubeflow.org", "pytorchjobs")),
        ("notebook/a", ("kubeflow.org", "notebooks")),
        ("raycluster/a", ("ray.io", "rayclusters")),
        ("ksvc/a", ("serving.knative.dev", "services")),
        ("train/a", ("acme.io", "trains")),
        ("service/a", None),
        ("pod/", None),
        ("pod", None),
        ("k8s/train.yaml", None),
        ("k8s/pod/a", None),
        ("./pod/a", None),
        ("-", None),
    ],
)
def test_a_target_is_a_kind_that_makes_pods_and_a_name(what, want):
    found = read_target(what, KINDS)
    assert (found and (found.kind.group, found.kind.resource)) == want
    assert found is None or found.name == "a"


def test_a_kind_of_policy_has_the_versions_that_the_server_has():
    assert read_target("train/a", KINDS).versions == ("*",)
