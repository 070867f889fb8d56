"""Pods that hold GPUs and do not use them, by a real Prometheus that scrapes what DCGM's exporter shows."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.control_plane.objects import definition, pod, pod_spec
from tests.control_plane.prometheus import prometheus
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_for, wait_phase
from tests.scenarios import serving
from tests.scenarios.dcgm import JOB, exporting
from tests.scenarios.evictor import alive, ask, evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import ROOT, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing, pytest.mark.usefixtures("promtool")]

SINCE, EVICT_AT = "fairgate.dev/idle-since", "fairgate.dev/evict-at"
BORROW = {TIER: "preemptible"}
SIZE = {"cpu": "1", "memory": "4Gi"}


def idle(url, *actions, **more):
    """The section idle, by which a pod is idle after ten seconds."""
    times = {"interval": "2s", "for": "10s", "startup": "0s", "notice": "4s"}
    found = {"prometheus": {"url": url}, "series": {"job": JOB, "namespace": "gpu-operator"}, "actions": list(actions)}
    return f"idle: {json.dumps(found | times | more)}\n"


@contextmanager
def measured(cluster, *actions, nodes=2, has_history=False, **more):
    """Fairgate with an evictor that reads utilization, the exporter and Prometheus."""
    make_nodes(cluster, nodes)
    with (
        exporting() as exporter,
        prometheus(cluster, [exporter.scrape()]) as running,
        serve_fairgate(
            cluster,
            limit_a=40,
            limit_b=40,
            policy=idle(running.url, *actions, **more),
            is_own=has_history,
            has_history=has_history,
        ) as fairgate,
        evictor(fairgate) as leader,
    ):
        yield fairgate, exporter, leader


def says(cluster, *words):
    """What a command prints about the cluster, for an admin."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "webhook", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


def annotations(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"].get("annotations") or {}


def wait_idle(cluster, namespace, name, *, is_idle=True):
    what = f"{name} is {'idle' if is_idle else 'used'}"
    wait_for(cluster, lambda: (SINCE in annotations(cluster, namespace, name)) is is_idle, what=what)


def test_an_idle_pod_is_on_every_surface_until_it_uses_its_gpus(cluster):
    with measured(cluster, "report", has_history=True) as (fairgate, exporter, leader):
        mine = fairgate.team_a
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(gpus=2, **SIZE)}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        cluster.kubectl.apply(
            [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}], "-n", mine
        )
        create_pod(cluster, mine, pod("busy", gpus=1, **SIZE))
        (name,) = wait_for(
            cluster, lambda: [each for each in alive(cluster, mine) if each.startswith("web")], what="a pod"
        )
        for each in (name, "busy"):
            wait_phase(cluster, mine, each, "Running")
        exporter.use(mine, name, 0, 2)
        exporter.use(mine, "busy", 87)
        wait_idle(cluster, mine, name)
        assert SINCE not in annotations(cluster, mine, "busy")

        def described(kind, what):
            return cluster.kubectl("describe", kind, what, "-n", mine)

        for kind, what in (("pod", name), ("deployment", "web")):
            wait_for(
                cluster, lambda kind=kind, what=what: "used less than 5 %" in described(kind, what), what="an Event"
            )

        status = json.loads(says(cluster, "status", "-o", "json"))
        (row,) = status["idle"]
        assert (row["pod"], row["team"], row["gpus"]) == (f"{mine}/{name}", "a", "2")
        assert {team["name"]: team.get("idle") for team in status["teams"]} == {"a": "2", "b": None}
        assert "idleUnknown" not in status
        explained = says(cluster, "explain", f"pod/{name}", "-n", mine)
        assert "Idle: its GPUs have not been used since" in explained

        def usage():
            (history,) = fairgate.histories
            found = json.loads(says(cluster, "usage", "--history", history, "--since", "1h", "-o", "json"))
            return next((each["heldIdle"] or 0 for each in found["usage"] if each["name"] == "a"), 0)

        wait_for(cluster, lambda: usage() > 2 * 10 / 3600, what="GPU-hours")
        exporter.use(mine, name, 0, 55)
        wait_idle(cluster, mine, name, is_idle=False)
        assert [each["name"] for each in leader.said("idle")] == [name]


def test_idle_borrowers_are_the_first_victims(cluster):
    with measured(cluster, "prefer") as (fairgate, exporter, _):
        mine = fairgate.team_a
        idle_pods = fill(cluster, mine, 10, prefix="idle", labels=BORROW)
        busy = fill(cluster, mine, 10, prefix="busy", labels=BORROW)
        for name in busy:
            exporter.use(mine, name, 60)
        on = {name: get_pod(cluster, mine, name)["spec"]["nodeName"] for name in idle_pods + busy}
        node = on[idle_pods[0]]
        chosen = [name for name in idle_pods if on[name] == node]
        for name in idle_pods:
            exporter.use(mine, name, 0 if name in chosen else 60)
        for name in chosen:
            wait_idle(cluster, mine, name)
        ask(cluster, fairgate.team_b, "b", gpus=len(chosen))
        wait_bound(cluster, fairgate.team_b, "b")
        assert evicted(cluster, mine, idle_pods + busy) == chosen


def test_an_idle_guaranteed_pod_makes_room_while_another_waits(cluster):
    with measured(cluster, "demote", nodes=1) as (fairgate, exporter, _):
        mine, theirs = fairgate.team_a, fairgate.team_b
        for name, percent in (("idle", 0), ("busy", 40)):
            create_pod(cluster, mine, pod(name, gpus=4, **SIZE))
            wait_phase(cluster, mine, name, "Running")
            exporter.use(mine, name, *[percent] * 4)
        wait_idle(cluster, mine, "idle")
        assert fairgate.tiers(mine) == ["guaranteed", "guaranteed"]
        ask(cluster, theirs, "b", gpus=6)
        wait_bound(cluster, theirs, "b")
        assert alive(cluster, mine) == ["busy"]


def test_an_idle_pod_is_evicted_after_a_notice_and_never_without_a_reading(cluster):
    make_nodes(cluster, 1)
    with exporting() as exporter, prometheus(cluster, [exporter.scrape()]) as running:
        url = running.url
        with (
            serve_fairgate(cluster, policy=idle(url, "evict", notice="30s")) as fairgate,
            evictor(fairgate) as leader,
        ):
            mine = fairgate.team_a
            create_pod(cluster, mine, pod("lazy", gpus=1, **SIZE))
            create_pod(cluster, mine, pod("unmeasured", gpus=1, **SIZE))
            for name in ("lazy", "unmeasured"):
                wait_phase(cluster, mine, name, "Running")
            exporter.use(mine, "lazy", 0)
            wait_for(cluster, lambda: EVICT_AT in annotations(cluster, mine, "lazy"), what="a notice")
            cluster.processes.end("prometheus")
            wait_for(cluster, lambda: EVICT_AT not in annotations(cluster, mine, "lazy"), what="it is withdrawn")
            wait_idle(cluster, mine, "lazy", is_idle=False)
            assert leader.said("idle pod evicted") == []

            wait_for(
                cluster,
                lambda: "IDLE: it is not known which pods use their GPUs" in says(cluster, "status"),
                what="status says so",
            )
            assert "the use of GPUs is not known" in says(cluster, "doctor", "-n", mine)

            with prometheus(cluster, [exporter.scrape()]) as again:
                text = (fairgate.policy / "teams.yaml").read_text().replace(url, again.url).replace("30s", "4s")
                serving.write_policy(fairgate.policy, text)
                wait_for(cluster, lambda: alive(cluster, mine) == ["unmeasured"], what="it is evicted", timeout=90)
                assert [each["name"] for each in leader.said("idle pod evicted")] == ["lazy"]


def test_a_notebook_stays_stopped(cluster):
    """Kubeflow's controller, which the test stands for, scales the StatefulSet of a stopped Notebook to 0."""
    with measured(cluster, "evict", nodes=1) as (fairgate, exporter, leader):
        mine = fairgate.team_a
        cluster.kubectl.apply(definition("kubeflow.org", "v1", kind="Notebook"))
        cluster.kubectl("wait", "--for=condition=Established", "crd/notebooks.kubeflow.org")
        path = f"/apis/kubeflow.org/v1/namespaces/{mine}/notebooks"
        head = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook"}
        try:
            made = cluster.api.create(path, {**head, "metadata": {"name": "nb"}})
            owner = {**head, "name": "nb", "uid": made["metadata"]["uid"], "controller": True}
            template = {"metadata": {"labels": {"notebook-name": "nb"}}, "spec": pod_spec(gpus=1, **SIZE)}
            spec = {"replicas": 1, "selector": {"matchLabels": {"notebook-name": "nb"}}, "template": template}
            metadata = {"name": "nb", "ownerReferences": [owner]}
            cluster.kubectl.apply(
                [{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}], "-n", mine
            )
            wait_for(cluster, lambda: alive(cluster, mine) == ["nb-0"], what="its pod")
            wait_phase(cluster, mine, "nb-0", "Running")
            exporter.use(mine, "nb-0", 0)

            def stopped():
                return (cluster.api.get(f"{path}/nb")["metadata"].get("annotations") or {}).get(
                    "kubeflow-resource-stopped"
                )

            wait_for(cluster, stopped, what="the Notebook is stopped")
            cluster.kubectl("scale", "statefulset", "nb", "--replicas=0", "-n", mine)
            wait_for(cluster, lambda: alive(cluster, mine) == [], what="its pod goes")
            wait_for(cluster, lambda: leader.said("idle pod evicted"), what="a log line")
            assert leader.said("idle pod evicted")[0]["notebook"] == "nb"
            assert cluster.api.get(f"{path}/nb")["metadata"]["uid"] == made["metadata"]["uid"]
        finally:
            cluster.kubectl("delete", "crd", "notebooks.kubeflow.org")
