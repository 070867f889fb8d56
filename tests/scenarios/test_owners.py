"""Owners get Events about their pods: refusals, evictions; and their controllers retry as soon as there is room."""

import json
import subprocess

import pytest

from tests.control_plane.objects import pod, pod_spec
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_for, wait_unschedulable
from tests.scenarios.evictor import ask, evictor, wait_bound
from tests.scenarios.serving import FAIRGATE
from tests.scenarios.standing_fairgate import ROOT, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "4Gi"}
RETRY = "fairgate.dev/retry-at"
TRIES = 12
"""Tries of a ReplicaSet in its first ten seconds; the next one would be ten seconds later."""


def deployment(name, replicas, *, labels=None, **spec):
    template = {"metadata": {"labels": {"app": name} | (labels or {})}, "spec": pod_spec(**spec, **SIZE)}
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def events_of(cluster, namespace, kind, reason):
    """The Events of a reason about objects of a kind."""
    found = cluster.api.list(f"/api/v1/namespaces/{namespace}/events")
    return [each for each in found if (each["involvedObject"]["kind"], each["reason"]) == (kind, reason)]


def explain(fairgate, *words):
    command = (*FAIRGATE, "explain", "--policy", fairgate.policy, "--kubeconfig", fairgate.cluster.kubeconfig)
    return subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT, check=False)


def running(cluster, namespace):
    return [each for each in list_pods(cluster, namespace) if each["status"].get("phase") == "Running"]


@pytest.mark.promise
def test_a_deployment_gets_an_event_why_it_has_no_pods_and_gets_them_once_there_is_room(cluster):
    make_nodes(cluster, 3)
    with serve_fairgate(cluster) as fairgate:
        team = fairgate.team_a
        for name in ("h1", "h2"):
            create_pod(cluster, team, pod(name, gpus=10, **SIZE))
        fairgate.wait_seen("a")
        cluster.kubectl.apply([deployment("web", 2, gpus=5)], "-n", team)
        wait_for(cluster, lambda: fairgate.refused("TeamLimitExceeded") >= TRIES, what="refused again and again")
        [event] = wait_for(
            cluster, lambda: events_of(cluster, team, "Deployment", "Refused"), what="an Event on the owner"
        )
        assert (event["involvedObject"]["name"], event["type"]) == ("web", "Warning")
        assert event["related"]["kind"] == "ReplicaSet"
        assert event["message"].startswith("exceeded quota: team a: requested 5, limit 20, used 20")
        explained = explain(fairgate, "deployment/web", "-n", team)
        assert explained.returncode == 1
        assert "0 of 2 pods exist" in explained.stdout
        assert "(TeamLimitExceeded)" in explained.stdout
        assert "events   Refused" in explained.stdout

        cluster.kubectl("delete", "pod", "h1", "-n", team, "--wait=false")
        wait_for(cluster, lambda: len(running(cluster, team)) == 3, what="the deployment has its pods")
        [found] = cluster.api.list(f"/apis/apps/v1/namespaces/{team}/replicasets")
        assert RETRY in found["metadata"]["annotations"]
        assert len(events_of(cluster, team, "Deployment", "Refused")) == 1


def test_reclaim_is_explained_in_advance_and_owners_of_victims_get_events(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        mine, theirs = fairgate.team_a, fairgate.team_b
        cluster.kubectl.apply([deployment("batch", 2, gpus=5, labels={TIER: "preemptible"})], "-n", mine)
        wait_for(cluster, lambda: len(running(cluster, mine)) == 2, what="borrowers run")
        ask(cluster, theirs, "b0", gpus=10)
        wait_unschedulable(cluster, theirs, "b0")
        wait_for(
            cluster, lambda: "no evictor leads" in explain(fairgate, "pod/b0", "-n", theirs).stdout, what="none leads"
        )
        before = explain(fairgate, "pod/b0", "-n", theirs)
        assert before.returncode == 1
        assert "10 GPUs can be reclaimed from a on" in before.stdout
        with evictor(fairgate):
            wait_bound(cluster, theirs, "b0")
            [event] = wait_for(
                cluster, lambda: events_of(cluster, mine, "Deployment", "Reclaimed"), what="an Event on the owner"
            )
            wait_for(
                cluster,
                lambda: events_of(cluster, mine, "Deployment", "Reclaimed")[0]["count"] == 2,
                what="both are counted",
            )
            assert "team b takes its share back for a pod of" in event["message"]
            assert "To be evicted: " in events_of(cluster, theirs, "Pod", "Reclaiming")[0]["message"]
            after = explain(fairgate, "pod/b0", "-n", theirs, "-o", "json")
            [report] = json.loads(after.stdout)
            assert (after.returncode, report["outcome"], report["reclaim"]) == (0, "admitted", None)
            assert "Reclaiming" in {each["reason"] for each in report["events"]}
            [gone] = {each["involvedObject"]["name"] for each in events_of(cluster, mine, "Pod", "Reclaimed")[:1]}
            past = explain(fairgate, f"pod/{gone}", "-n", mine)
            assert "has ended or was deleted; its Events:\n  Reclaimed" in past.stderr
