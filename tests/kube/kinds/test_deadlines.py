"""Deadlines that run on while pods wait in line, by the manifests of each kind."""

import pytest

from tests import builders as b
from webhook.kube.kinds.kind_row import running_deadline
from webhook.kube.kinds.table import BY_KIND, kind_table
from webhook.kube.workloads.expand import expand


@pytest.mark.parametrize(
    ("group", "kind", "spec", "want"),
    [
        ("batch", "Job", {"activeDeadlineSeconds": 60}, "activeDeadlineSeconds (60)"),
        ("batch", "CronJob", {"jobTemplate": {"spec": {"activeDeadlineSeconds": 60}}}, "activeDeadlineSeconds (60)"),
        ("kubeflow.org", "PyTorchJob", {"runPolicy": {"activeDeadlineSeconds": 9}}, "activeDeadlineSeconds (9)"),
        ("apps", "Deployment", {"progressDeadlineSeconds": 600}, "progressDeadlineSeconds (600)"),
        ("apps", "Deployment", {"progressDeadlineSeconds": 2**31 - 1}, ""),
        ("apps", "Deployment", {}, "progressDeadlineSeconds (600)"),
        ("argoproj.io", "Rollout", {}, "progressDeadlineSeconds (600)"),
        (
            "jobset.x-k8s.io",
            "JobSet",
            {"replicatedJobs": [{"template": {"spec": {"activeDeadlineSeconds": n}}} for n in (90, 60)]},
            "activeDeadlineSeconds (60)",
        ),
        ("jobset.x-k8s.io", "JobSet", {"replicatedJobs": [{}, None, "x"]}, ""),
        ("jobset.x-k8s.io", "JobSet", {"replicatedJobs": "x"}, ""),
        ("argoproj.io", "Workflow", {"activeDeadlineSeconds": 60}, "activeDeadlineSeconds (60)"),
        ("argoproj.io", "CronWorkflow", {"workflowSpec": {"activeDeadlineSeconds": 7}}, "activeDeadlineSeconds (7)"),
        ("serving.knative.dev", "Service", {}, "progress-deadline (600)"),
        (
            "serving.knative.dev",
            "Service",
            {"template": {"metadata": {"annotations": {"serving.knative.dev/progress-deadline": "20m"}}}},
            "progress-deadline (1200)",
        ),
        (
            "serving.knative.dev",
            "Service",
            {"template": {"metadata": {"annotations": {"serving.knative.dev/progress-deadline": "soon"}}}},
            "",
        ),
        ("serving.kserve.io", "InferenceService", {}, "progress-deadline (600)"),
        ("tekton.dev", "TaskRun", {}, "timeout (3600)"),
        ("tekton.dev", "TaskRun", {"timeout": "0"}, ""),
        ("tekton.dev", "PipelineRun", {"timeouts": {"pipeline": "1h30m"}}, "timeouts.pipeline (5400)"),
        ("orchestration.aibrix.ai", "RayClusterFleet", {}, "progressDeadlineSeconds (600)"),
        ("apps", "StatefulSet", {"progressDeadlineSeconds": 600}, ""),
        ("batch", "Job", {"template": {"spec": {"activeDeadlineSeconds": 60}}}, ""),
        ("batch", "Job", {"activeDeadlineSeconds": True}, ""),
        ("batch", "Job", {"activeDeadlineSeconds": -1}, ""),
        ("batch", "Job", [], ""),
    ],
)
def test_a_deadline_is_named_with_its_seconds(group, kind, spec, want):
    assert running_deadline({"spec": spec}, BY_KIND[group, kind].deadline) == want


@pytest.mark.parametrize(
    ("workflow", "template", "want"),
    [
        ({}, {"timeout": "10m"}, "timeout (600)"),
        ({"activeDeadlineSeconds": 60}, {"timeout": "10m"}, "activeDeadlineSeconds (60)"),
        ({"templateDefaults": {"timeout": "5m"}}, {}, "timeout (300)"),
        ({}, {"activeDeadlineSeconds": 60}, ""),
    ],
    ids=["of its template", "of the workflow, which is shorter", "of all templates", "of the pod, from its start"],
)
def test_a_template_of_argo_with_gpus_has_a_timeout_that_runs_on(workflow, template, want):
    trains = {"name": "trains", "container": b.container(gpus=1), **template}
    reads = {"name": "reads", "container": b.container(gpus=0), "timeout": "1s"}
    steps = {"name": "all", "steps": [[{"name": "a", "template": "reads"}], [{"name": "b", "template": "trains"}]]}
    spec = {"entrypoint": "all", "templates": [steps, trains, reads], **workflow}
    made = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}
    assert expand(made, kinds=kind_table()).deadline == want
