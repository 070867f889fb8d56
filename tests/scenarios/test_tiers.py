"""Tiers follow reality: room in the share promotes, a lowered share demotes, one leader does it once, all is told."""

import json
import signal
import time

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import create_pod, get_pod, make_namespace, make_nodes, wait_for, wait_phase
from tests.docs.pages import blocks
from tests.scenarios.gate import DECISION, ROOT, TIER, gate

pytestmark = pytest.mark.cluster

SIZE = {"cpu": "2", "memory": "8Gi"}


def tier(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"]["labels"][TIER]


def tier_patches(cluster):
    """Every write of a tier that the API server was asked for, by the pod's name."""
    return [
        event["objectRef"]["name"]
        for event in cluster.audit_events()
        if event["verb"] == "patch" and "fieldManager=fairgate" in event["requestURI"]
    ]


def start_replica(fairgate):
    """Start one more server on the same cluster, policy and certificates; gives its process name."""
    (port,) = free_ports(1)
    listen = fairgate.command.index("--listen") + 1
    command = (*fairgate.command[:listen], f"127.0.0.1:{port}", *fairgate.command[listen + 1 :])
    fairgate.cluster.processes.start(f"{fairgate.name}-second", command, cwd=ROOT)
    return f"{fairgate.name}-second"


def leads(cluster, name):
    """Whether a process says so in its log, last of all it says about it."""
    said = [line for line in cluster.processes.log(name, lines=1000).splitlines() if "leading" in line]
    return bool(said) and '"event":"leading"' in said[-1]


def described_with(cluster, namespace, name, words):
    """What `kubectl describe` says of a pod, once it says these words."""
    text = cluster.kubectl("describe", "pod", name, "-n", namespace)
    return text if words in text else ""


def test_a_freed_share_promotes_the_oldest_and_a_lowered_one_demotes_the_newest(start_control_plane):
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 4)
    with gate(cluster, limit_a=40) as fairgate:
        second = start_replica(fairgate)
        mine = fairgate.team_a
        for number in range(30):
            create_pod(cluster, mine, pod(f"p{number:02}", gpus=1, **SIZE))
            if number == 19:
                time.sleep(1.1)  # creation times are in whole seconds: the borrowers are younger
        assert fairgate.tiers(mine) == ["guaranteed"] * 20 + ["preemptible"] * 10
        wait_phase(cluster, mine, "p29", "Running")

        cluster.kubectl("delete", "pod", "p03", "-n", mine, "--wait=true")
        gone = time.monotonic()
        wait_for(cluster, lambda: tier(cluster, mine, "p20") == "guaranteed", what="the oldest borrower is promoted")
        assert time.monotonic() - gone < 5
        assert fairgate.tiers(mine) == ["guaranteed"] * 20 + ["preemptible"] * 9
        mark = json.loads(get_pod(cluster, mine, "p20")["metadata"]["annotations"][DECISION])
        assert mark["code"] == "WithinShare"
        described = wait_for(cluster, lambda: described_with(cluster, mine, "p20", "Promoted"), what="the Event")
        assert "now guaranteed: there is room for its 1 GPU in team a's guaranteed share of 20, 19 taken" in described

        refused = cluster.kubectl.run("label", "--overwrite", "pod", "p21", f"{TIER}=guaranteed", "-n", mine)
        assert "(ProtectedKeyChanged)" in refused.stderr

        file = fairgate.policy / "teams.yaml"
        file.write_text(file.read_text().replace('"guaranteed": 20', '"guaranteed": 15', 1))
        want = ["guaranteed"] * 15 + ["preemptible"] * 14
        wait_for(cluster, lambda: fairgate.tiers(mine) == want, what="the newest five are demoted")
        assert "it borrows, and may be evicted" in wait_for(
            cluster, lambda: described_with(cluster, mine, "p20", "Demoted"), what="the Event of the demotion"
        )
        time.sleep(2)
        assert sorted(tier_patches(cluster)) == ["p16", "p17", "p18", "p19", "p20", "p20"]
        fairgate.cluster.processes.stop(second, number=signal.SIGTERM, timeout=10)


def test_a_leader_that_is_paused_is_replaced_and_does_nothing_twice_when_it_wakes(start_control_plane):
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 3)
    with gate(cluster, limit_a=40) as fairgate:
        mine = fairgate.team_a
        create_pod(cluster, mine, pod("k", gpus=10, **SIZE))
        create_pod(cluster, mine, pod("k2", gpus=10, **SIZE))
        create_pod(cluster, mine, pod("p", gpus=5, **SIZE))
        fairgate.stop(signal.SIGKILL)  # the other one is to lead, since this one answers the guard's questions
        second = start_replica(fairgate)
        wait_for(
            cluster, lambda: leads(cluster, second), what="the second leads after the first was killed", timeout=40
        )
        fairgate.start()
        cluster.processes.send_signal(second, signal.SIGSTOP)
        paused = time.monotonic()
        cluster.kubectl("delete", "pod", "k", "-n", mine, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, mine, "p") == "guaranteed", what="another leader promotes", timeout=40)
        assert time.monotonic() - paused < 30
        cluster.processes.send_signal(second, signal.SIGCONT)
        wait_for(cluster, lambda: not leads(cluster, second), what="the one that was paused knows that it is over")
        time.sleep(2)
        assert tier_patches(cluster) == ["p"]
        assert leads(cluster, fairgate.name)


def test_the_rights_in_the_docs_are_enough_and_its_own_service_account_needs_no_flag(start_control_plane):
    cluster = start_control_plane()
    make_nodes(cluster, 3)
    make_namespace(cluster, "fairgate-system")
    rules = [block.text for block in blocks(ROOT / "docs" / "operations.md") if "rbac.authorization" in block.text]
    cluster.kubectl("apply", "-f", "-", stdin="---\n".join(rules))
    cluster.kubectl("create", "serviceaccount", "fairgate", "-n", "fairgate-system")
    account = "--serviceaccount=fairgate-system:fairgate"
    cluster.kubectl("create", "clusterrolebinding", "fairgate", "--clusterrole=fairgate", account)
    cluster.kubectl("create", "rolebinding", "fairgate", "--role=fairgate", account, "-n", "fairgate-system")
    credentials = cluster.service_account_kubeconfig("fairgate-system", "fairgate")
    with gate(cluster, limit_a=40, kubeconfig=credentials) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("k", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("k2", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("p", gpus=5, **SIZE))
        cluster.kubectl("delete", "pod", "k", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, fairgate.team_a, "p") == "guaranteed", what="the borrower is promoted")
        wait_for(cluster, lambda: described_with(cluster, fairgate.team_a, "p", "Promoted"), what="the Event")
        assert "forbidden" not in cluster.processes.log(fairgate.name, lines=1000)
        refused = cluster.kubectl.run("label", "--overwrite", "pod", "p", f"{TIER}=preemptible", "-n", fairgate.team_a)
        assert "(ProtectedKeyChanged)" in refused.stderr
