"""Warnings of kubectl about a workload that can never run as a whole, on a real API server."""

import json

import pytest

from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]
SIZE = {"cpu": "1", "memory": "1Gi"}
REJECT = "workloads: {onLimit: reject}"


def deployment(name, *, replicas, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(**SIZE, **spec)}
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def cron_job(name, *, pods, gpus):
    spec = {
        "schedule": "0 0 1 1 *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": job("x", pods=pods, gpus=gpus)["spec"]},
    }
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def applied(fairgate, manifest):
    """Return kubectl's standard error."""
    return fairgate.cluster.kubectl.run("apply", "-n", fairgate.team_a, "-f", "-", stdin=json.dumps(manifest))


def asked(fairgate):
    """How many workloads the server has reviewed."""
    return fairgate.metric("fairgate_decisions_total", phase="workloads")


def test_kubectl_shows_a_warning_for_a_workload_that_can_never_run(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        done = applied(fairgate, deployment("serve", replicas=24, gpus=1))
        assert done.returncode == 0, done.stderr
        want = [
            "Warning: Deployment serve: needs 24 GPUs, team a's limit is 20",
            "Warning: Deployment serve: the nodes hold 20 of 24 pods (nvidia.com/gpu 1) at once, even when empty",
        ]
        assert done.stderr.splitlines() == want
        done = applied(fairgate, cron_job("nightly", pods=3, gpus=11))
        assert done.stderr.splitlines() == [
            "Warning: CronJob nightly: needs 33 GPUs, team a's limit is 20",
            "Warning: CronJob nightly: no node could hold one pod: it asks for nvidia.com/gpu 11, the largest of 2 "
            "nodes has 10; ask for less",
        ]
        wait_for(cluster, lambda: len(list_pods(cluster, fairgate.team_a)) == 20, what="pods up to the limit")


def test_only_workloads_of_users_that_may_request_gpus_are_reviewed(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        assert applied(fairgate, deployment("web", replicas=50)).stderr == ""
        assert applied(fairgate, deployment("serve", replicas=2, gpus=1)).stderr == ""
        wait_for(cluster, lambda: len(list_pods(cluster, fairgate.team_a)) == 52, what="all pods")
        assert asked(fairgate) == 1


def test_policy_may_refuse_the_workload(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=REJECT) as fairgate:
        done = applied(fairgate, job("train", pods=24, gpus=1))
        assert done.returncode == 1
        want = "exceeded quota: Job train: needs 24 GPUs, team a's limit is 20 (TeamLimitExceeded)"
        assert want in done.stderr
        assert applied(fairgate, job("train", pods=2, gpus=1, **SIZE)).returncode == 0


OWN_KIND = """
workloads:
  kinds:
    - group: ml.example.com
      kind: TrainingRun
      resource: trainingruns
      pods: [{each: spec.workers, template: template, replicas: [replicas]}]
"""


def definition():
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trainingruns.ml.example.com"},
        "spec": {
            "group": "ml.example.com",
            "names": {"kind": "TrainingRun", "plural": "trainingruns", "singular": "trainingrun"},
            "scope": "Namespaced",
            "versions": [{"name": "v1alpha3", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_a_kind_described_in_the_policy_gets_a_warning_too(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=OWN_KIND) as fairgate:
        cluster.kubectl.apply(definition())
        cluster.kubectl("wait", "--for=condition=Established", "crd/trainingruns.ml.example.com")
        workers = [{"name": "a", "replicas": 6, "template": {"spec": pod_spec(gpus=4, **SIZE)}}]
        manifest = {
            "apiVersion": "ml.example.com/v1alpha3",
            "kind": "TrainingRun",
            "metadata": {"name": "run"},
            "spec": {"workers": workers},
        }
        try:
            wait_for(cluster, lambda: fairgate_warns(fairgate, manifest), what="the new kind is warned of")
        finally:
            cluster.kubectl("delete", "crd", "trainingruns.ml.example.com")


def fairgate_warns(fairgate, manifest):
    """Whether a dry run has the expected warning; the API server takes a moment to know a new kind."""
    done = fairgate.cluster.kubectl.run(
        "apply", "--dry-run=server", "-n", fairgate.team_a, "-f", "-", stdin=json.dumps(manifest)
    )
    return "Warning: TrainingRun run: needs 24 GPUs, team a's limit is 20" in done.stderr.splitlines()


def test_a_job_that_another_cluster_runs_is_not_judged_and_makes_no_pods(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=REJECT) as fairgate:
        here, remote = job("here", pods=6, gpus=8), job("remote", pods=6, gpus=8)
        here["spec"]["managedBy"] = "kubernetes.io/job-controller"
        remote["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
        refused = applied(fairgate, here)
        assert "needs 48 GPUs, team a's limit is 20" in refused.stderr
        assert refused.returncode != 0
        done = applied(fairgate, remote)
        assert (done.returncode, done.stderr) == (0, "")
        # a Job made after it has its pod first, and the one that names another controller never gets any
        assert applied(fairgate, job("after", pods=1, gpus=1)).returncode == 0
        wait_for(cluster, lambda: list_pods(cluster, fairgate.team_a), what="the pod of the Job after it")
        [made] = list_pods(cluster, fairgate.team_a)
        assert made["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "after"


def test_who_forges_that_another_cluster_runs_a_job_gets_no_pod_past_the_limit(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, policy=REJECT) as fairgate:
        forged = job("forged", pods=30, gpus=1)
        forged["spec"]["managedBy"] = "example.com/mine"
        assert applied(fairgate, forged).returncode == 0
        owner = json.loads(fairgate.cluster.kubectl("get", "job", "forged", "-n", fairgate.team_a, "-o", "json"))
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "forged", "uid": uid, "controller": True}
        for name in ("one", "two"):
            assert applied(fairgate, pod(name, owners=[reference], gpus=8, **SIZE)).returncode == 0
        done = applied(fairgate, pod("three", owners=[reference], gpus=8, **SIZE))
        assert "exceeded quota: team a: requested 8, limit 20" in done.stderr
        assert done.returncode != 0
