"""Tiers follow usage: room in the share promotes, a lowered share demotes, one leader does it once, with Events."""

import json
import signal
import time
from http import HTTPStatus

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_namespace, make_nodes, wait_for, wait_phase
from tests.scenarios.standing_fairgate import DECISION, LEASE_SECONDS, ROOT, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SIZE = {"cpu": "2", "memory": "8Gi"}


def tier(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"]["labels"][TIER]


def tier_patches(cluster):
    """Every tier that was written, by the pod's name; without writes of a paused replica that were not answered."""
    return [
        event["objectRef"]["name"]
        for event in cluster.audit_events()
        if event["verb"] == "patch"
        and "fieldManager=fairgate" in event["requestURI"]
        and event["responseStatus"]["code"] == HTTPStatus.OK
    ]


def leader(fairgate):
    """The number of the replica that leads, by the replicas' own metrics; None unless exactly one does."""
    running = [n for n, replica in enumerate(fairgate.replicas) if fairgate.cluster.processes.is_running(replica.name)]
    leading = [number for number in running if fairgate.metric("fairgate_leader", replica=number)]
    return leading[0] if len(leading) == 1 else None


def wait_for_leader(fairgate):
    wait_for(fairgate.cluster, lambda: leader(fairgate) is not None, what="one replica leads")
    return leader(fairgate)


def holder(cluster):
    return cluster.api.get(f"{LEASES}/fairgate")["spec"].get("holderIdentity")


def described_with(cluster, namespace, name, words):
    """The output of `kubectl describe` for a pod, once it has this text."""
    text = cluster.kubectl("describe", "pod", name, "-n", namespace)
    return text if words in text else ""


@pytest.mark.promise
def test_a_freed_share_promotes_the_oldest_and_a_lowered_one_demotes_the_newest(start_control_plane):
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40, replicas=2) as fairgate:
        mine = fairgate.team_a
        for number in range(30):
            create_pod(cluster, mine, pod(f"p{number:02}", gpus=1, **SIZE))
            if number == 19:
                time.sleep(1.1)  # creation times are in whole seconds: the borrowers are younger
        assert fairgate.tiers(mine) == ["guaranteed"] * 20 + ["preemptible"] * 10
        wait_phase(cluster, mine, "p29", "Running")

        cluster.kubectl("delete", "pod", "p03", "-n", mine, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, mine, "p20") == "guaranteed", what="the oldest borrower is promoted")
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
        cluster.kubectl("delete", "pod", "p00", "-n", mine, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, mine, "p16") == "guaranteed", what="the next one is promoted")
        assert sorted(tier_patches(cluster)) == ["p16", "p16", "p17", "p18", "p19", "p20", "p20"]


def test_a_paused_leader_is_replaced_and_repeats_nothing_when_it_resumes(start_control_plane):
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 3)
    with serve_fairgate(cluster, limit_a=40, replicas=2) as fairgate:
        mine = fairgate.team_a
        for name, count in (("k", 10), ("k2", 10), ("p", 5)):
            create_pod(cluster, mine, pod(name, gpus=count, **SIZE))
        first = wait_for_leader(fairgate)
        fairgate.pause(first)
        cluster.kubectl("delete", "pod", "k", "-n", mine, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, mine, "p") == "guaranteed", what="the other promotes")
        fairgate.resume(first)
        wait_for(cluster, lambda: leader(fairgate) == 1 - first, what="the paused leader has lost its Lease")
        create_pod(cluster, mine, pod("next", gpus=8, **SIZE))
        cluster.kubectl("delete", "pod", "k2", "-n", mine, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, mine, "next") == "guaranteed", what="the next one is promoted")
        assert tier_patches(cluster) == ["p", "next"]


def test_a_leader_that_is_killed_is_replaced(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, replicas=2) as fairgate:
        first = wait_for_leader(fairgate)
        fairgate.stop(signal.SIGKILL, replica=first)
        killed = time.monotonic()
        assert wait_for_leader(fairgate) == 1 - first
        assert time.monotonic() - killed > LEASE_SECONDS * 2 / 3
        fairgate.start(first)
        left = holder(cluster)
        fairgate.stop(signal.SIGTERM, replica=1 - first)
        assert holder(cluster) != left, "a stopped leader releases its Lease"
        assert wait_for_leader(fairgate) == first


def test_the_rights_in_the_docs_are_enough_and_its_own_service_account_needs_no_flag(start_control_plane):
    cluster = start_control_plane()
    make_nodes(cluster, 3)
    make_namespace(cluster, "fairgate-system")
    cluster.kubectl("apply", "-f", ROOT / "docs" / "reference" / "rights.yaml")
    cluster.kubectl("create", "serviceaccount", "fairgate", "-n", "fairgate-system")
    account = "--serviceaccount=fairgate-system:fairgate"
    for name in ("fairgate-server", "fairgate-registration"):
        cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    for role, namespace in (("fairgate-server", "fairgate-system"), ("fairgate-autoscaler", "kube-system")):
        cluster.kubectl("create", "rolebinding", role, f"--role={role}", account, "-n", namespace)
    credentials = cluster.service_account_kubeconfig("fairgate-system", "fairgate")
    with serve_fairgate(cluster, limit_a=40, kubeconfig=credentials) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("k", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("k2", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("p", gpus=5, **SIZE))
        cluster.kubectl("delete", "pod", "k", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: tier(cluster, fairgate.team_a, "p") == "guaranteed", what="the borrower is promoted")
        wait_for(cluster, lambda: described_with(cluster, fairgate.team_a, "p", "Promoted"), what="the Event")
        assert "forbidden" not in cluster.processes.log(fairgate.replicas[0].name, lines=1000)
        refused = cluster.kubectl.run("label", "--overwrite", "pod", "p", f"{TIER}=preemptible", "-n", fairgate.team_a)
        assert "(ProtectedKeyChanged)" in refused.stderr
