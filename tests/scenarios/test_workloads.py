"""Pods of every controller are unchanged except for Fairgate's keys and the node affinity; dry runs charge nothing."""

import json

import pytest

from tests.builders import decision_of
from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import get_pod, list_pods, make_namespace, make_nodes, wait_for
from tests.scenarios.manifests import SIZE, job_set, pytorch_job
from tests.scenarios.standing_fairgate import DECISION, TEAM, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

GENERATED = ("uid", "resourceVersion", "creationTimestamp", "name", "namespace", "managedFields", "ownerReferences")
HASHES = ("controller-uid", "pod-template-hash", "controller-revision-hash", "job-key", "jobset-uid", "job-name")


def replicated(kind, name, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus=1, **SIZE)}
    body = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def cron_job(name):
    schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("x", gpus=1, **SIZE)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": schedule}


WORKLOADS = [
    pytest.param([replicated("Deployment", "serve")], 2, id="Deployment"),
    pytest.param([replicated("ReplicaSet", "rs")], 2, id="ReplicaSet"),
    pytest.param([replicated("StatefulSet", "db", serviceName="db")], 2, id="StatefulSet"),
    pytest.param([job("train", pods=3, gpus=1, **SIZE)], 3, id="Job"),
    pytest.param([cron_job("nightly")], 1, id="CronJob"),
]


def start(cluster, namespace, workload):
    cluster.kubectl.apply(workload, "-n", namespace)
    if workload[0]["kind"] == "CronJob":
        cluster.kubectl("create", "job", "by-hand", "--from=cronjob/nightly", "-n", namespace)


def ready(cluster, namespace, count):
    def all_running():
        pods = list_pods(cluster, namespace)
        assert [found["status"].get("phase") for found in pods] == ["Running"] * count
        return sorted(pods, key=lambda found: found["metadata"]["name"])

    return wait_for(cluster, all_running, what=f"{count} pods running in {namespace}")


def essence(found, namespace):
    """A pod without generated fields and without what Fairgate adds."""
    text = json.dumps({"metadata": found["metadata"], "spec": found["spec"]}).replace(namespace, "NAMESPACE")
    kept = json.loads(text)
    metadata, spec = kept["metadata"], kept["spec"]
    for key in GENERATED:
        metadata.pop(key, None)
    for mapping in (metadata.get("labels", {}), metadata.get("annotations", {})):
        for key in [key for key in mapping if key in (TEAM, TIER, DECISION) or key.rpartition("/")[2] in HASHES]:
            del mapping[key]
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    for key in ("nodeName", "affinity", "hostname", "subdomain"):
        spec.pop(key, None)
    for volume in spec.get("volumes", []):
        volume["name"] = volume["name"].rpartition("-")[0] or volume["name"]
    for container in spec["containers"] + spec.get("initContainers", []):
        for mount in container.get("volumeMounts", []):
            mount["name"] = mount["name"].rpartition("-")[0] or mount["name"]
    return kept


@pytest.mark.promise
@pytest.mark.parametrize(("workload", "count"), WORKLOADS)
def test_a_controllers_pods_run_placed_and_otherwise_unchanged(cluster, workload, count):
    assert_placed_and_otherwise_unchanged(cluster, workload, count)


@pytest.mark.promise
@pytest.mark.usefixtures("training_operator")
def test_the_pods_of_a_pytorchjob_too(cluster):
    assert_placed_and_otherwise_unchanged(cluster, [pytorch_job("bert")], 4)


@pytest.mark.usefixtures("jobset")
def test_the_pods_of_a_jobset_too(cluster):
    assert_placed_and_otherwise_unchanged(cluster, [job_set("sweep")], 4)


def assert_placed_and_otherwise_unchanged(cluster, workload, count):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        exempt = make_namespace(cluster, labels={"fairgate.dev/exempt": "true"})
        for namespace in (fairgate.team_a, exempt):
            start(cluster, namespace, workload)
        placed, plain = ready(cluster, fairgate.team_a, count), ready(cluster, exempt, count)
        for found in placed:
            assert found["metadata"]["labels"][TEAM] == "a"
            assert found["metadata"]["labels"][TIER] == "guaranteed"
            assert found["spec"]["nodeName"] in decision_of(found)["nodes"]
        assert all(TEAM not in found["metadata"].get("labels", {}) for found in plain)
        want = sorted((essence(found, exempt) for found in plain), key=json.dumps)
        got = sorted((essence(found, fairgate.team_a) for found in placed), key=json.dumps)
        assert got == want
        wait_for(cluster, lambda: fairgate.charged("a") == count, what=f"{count} GPUs charged")


@pytest.mark.promise
def test_dry_runs_and_diffs_are_judged_in_full_and_charge_nothing(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        manifest = json.dumps(pod("dry", gpus=4, **SIZE))
        for _ in range(6):  # six times four is more than the limit: a dry run that charged would show
            cluster.kubectl("apply", "--dry-run=server", "-n", fairgate.team_a, "-f", "-", stdin=manifest)
            diff = cluster.kubectl.run("diff", "-n", fairgate.team_a, "-f", "-", stdin=manifest)
            assert diff.returncode == 1, diff.stderr
            assert "fairgate.dev/tier: guaranteed" in diff.stdout
        assert fairgate.charged("a") == 0
        refused = cluster.kubectl.run(
            "apply", "--dry-run=server", "-n", fairgate.team_a, "-f", "-", stdin=json.dumps(pod("dry", gpus=21, **SIZE))
        )
        assert "exceeded quota: team a: requested 21, limit 20" in refused.stderr


def test_pods_without_gpus_and_daemonsets_are_left_alone(cluster):
    names = make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        daemon = replicated("DaemonSet", "agent")
        del daemon["spec"]["replicas"]
        cluster.kubectl.apply([daemon, pod("plain", **SIZE)], "-n", fairgate.team_a)
        ready(cluster, fairgate.team_a, 3)
        plain = get_pod(cluster, fairgate.team_a, "plain")
        assert not {TEAM, TIER} & set(plain["metadata"].get("labels", {}))
        assert "affinity" not in plain["spec"]
        daemons = [found for found in list_pods(cluster, fairgate.team_a) if found["metadata"]["name"] != "plain"]
        assert sorted(found["spec"]["nodeName"] for found in daemons) == sorted(names)

        def have_a_tier():
            found = [each for each in list_pods(cluster, fairgate.team_a) if each["metadata"]["name"] != "plain"]
            return all(each["metadata"]["labels"].get(TIER) == "guaranteed" for each in found)

        wait_for(cluster, have_a_tier, what="those of the DaemonSet, which runs already, have a tier")
        wait_for(cluster, lambda: fairgate.charged("a") == 2, what="the DaemonSet's two GPUs are counted")


def test_running_and_ended_pods_are_counted_as_they_are(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([pod("p", gpus=5, **SIZE)], "-n", fairgate.team_a)
        ready(cluster, fairgate.team_a, 1)
        wait_for(cluster, lambda: fairgate.charged("a") == 5, what="charged while it runs")
        cluster.kubectl("delete", "pod", "p", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="released when it is gone")
