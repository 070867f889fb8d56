"""Operating the evictor: its rights, its dry run, its repairs."""

import subprocess
import sys

import pytest
import yaml

from tests.control_plane.commands import SCHEDULER
from tests.control_plane.objects import pod
from tests.control_plane.workbench import list_pods, make_namespace, make_nodes, wait_for
from tests.docs.pages import blocks
from tests.popen import killed_on_failure
from tests.scenarios.evictor import alive, ask, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import ROOT, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
RIGHTS = ROOT / "docs" / "reference" / "rights.yaml"


def test_the_rights_in_the_docs_are_enough(start_control_plane):
    cluster = start_control_plane()
    make_nodes(cluster, 1)
    make_namespace(cluster, "fairgate-system")
    cluster.kubectl("apply", "-f", str(RIGHTS))
    cluster.kubectl("create", "serviceaccount", "evictor", "-n", "fairgate-system")
    account = "--serviceaccount=fairgate-system:evictor"
    role = "fairgate-evictor"
    cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)
    for name, namespace in ((role, "fairgate-system"), ("fairgate-autoscaler", "kube-system")):
        cluster.kubectl("create", "rolebinding", name, f"--role={name}", account, "-n", namespace)
    credentials = cluster.service_account_kubeconfig("fairgate-system", "evictor")
    options = ("--kubeconfig", credentials, "--namespace", "fairgate-system")
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 1s}") as fairgate:
        fill(cluster, fairgate.team_a, 10, labels=BORROW)
        with evictor(fairgate, *options) as running:
            ask(cluster, fairgate.team_b, "b")
            wait_bound(cluster, fairgate.team_b, "b")
            described = lambda: cluster.kubectl("describe", "pod", "b", "-n", fairgate.team_b)  # noqa: E731
            wait_for(cluster, lambda: "Reclaiming" in described(), what="the Event")
            assert "forbidden" not in cluster.processes.log(running.name, lines=1000)


def test_the_samples_that_save_their_work_are_valid(cluster):
    samples = [block.text for block in blocks(ROOT / "docs" / "tasks" / "saving.md") if "downwardAPI:" in block.text]
    assert [yaml.safe_load(sample)["kind"] for sample in samples] == ["Job", "Pod"]
    with serve_fairgate(cluster) as fairgate:
        for sample in samples:
            cluster.kubectl("create", "--dry-run=server", "-n", fairgate.team_a, "-f", "-", stdin=sample)


def test_a_dry_run_prints_the_victims_and_evicts_no_pod(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate:
        fill(cluster, fairgate.team_a, 10, labels=BORROW)
        ask(cluster, fairgate.team_b, "b", gpus=3)
        flags = ["--policy", str(fairgate.policy), "--kubeconfig", str(cluster.kubeconfig), "--dry-run"]
        command = [sys.executable, "-m", "webhook", "evict", *flags]
        with killed_on_failure(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)) as dry_run:
            line = dry_run.stdout.read()
            assert dry_run.wait(timeout=60) == 0
        assert f"{fairgate.team_b}/b (3 GPUs, team b): would get room on node-0, 3 evicted: " in line
        assert len(alive(cluster, fairgate.team_a)) == 10


def test_a_pod_whose_nodes_were_cordoned_is_replaced_on_other_nodes_and_a_bare_pod_is_reported(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate, evictor(fairgate, "--repair-after", "4") as running:
        mine = fairgate.team_a
        cluster.stop(SCHEDULER)  # and not only paused: a resumed one may bind before it sees the cordons
        labels = {"app": "web"}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod("web", gpus=1, labels=labels)}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec}
        cluster.api.create(f"/apis/apps/v1/namespaces/{mine}/replicasets", body)
        (first,) = wait_for(cluster, lambda: list_pods(cluster, mine), what="the pod")
        ask(cluster, fairgate.team_b, "bare")
        for name in ("node-0", "node-1"):
            cluster.kubectl("cordon", name)
        make_nodes(cluster, 1, prefix="new")
        cluster.start(SCHEDULER)
        wait_for(
            cluster,
            lambda: [each["spec"].get("nodeName") for each in list_pods(cluster, mine)] == ["new-0"],
            what="a new pod runs on the new node",
            timeout=120,
        )
        (second,) = list_pods(cluster, mine)
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        reported = lambda: sorted((line["reason"], line["namespace"]) for line in running.said("stranded"))  # noqa: E731
        want = [("Replaced", mine), ("Stranded", fairgate.team_b)]
        wait_for(cluster, lambda: reported() == want, what="one is replaced, the other reported")
        described = lambda: cluster.kubectl("describe", "pod", "bare", "-n", fairgate.team_b)  # noqa: E731
        wait_for(cluster, lambda: "delete it and create it again" in described(), what="the Event")
