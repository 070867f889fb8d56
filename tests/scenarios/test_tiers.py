"""Tiers follow reality: room in the share promotes, a lowered share demotes, one leader does it once, all is told."""

import json
import signal
import time

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_for, wait_phase
from tests.scenarios.gate import DECISION, TIER, gate

pytestmark = pytest.mark.cluster

SIZE = {"cpu": "2", "memory": "8Gi"}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/fairgate"


def tier(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"]["labels"][TIER]


def tier_patches(cluster):
    """Every write of a tier that the API server was asked for, by the pod's name."""
    return [
        event["objectRef"]["name"]
        for event in cluster.audit_events()
        if event["verb"] == "patch" and "fieldManager=fairgate" in event["requestURI"]
    ]


def start_replica(fairgate, name="second"):
    """Start one more server on the same cluster, policy and certificates; gives its process name."""
    (port,) = free_ports(1)
    command = [f"127.0.0.1:{port}" if ":" in str(w) and str(w).startswith("127.") else w for w in fairgate.command]
    fairgate.cluster.processes.start(f"{fairgate.name}-{name}", command, cwd=".")
    return f"{fairgate.name}-{name}"


def holder(cluster):
    return cluster.api.get(LEASE)["spec"].get("holderIdentity", "")


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
        assert (
            "now guaranteed: there is room for its 1 GPU in team a's guaranteed share of 20, of which 19 are"
            in described
        )

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


def described_with(cluster, namespace, name, words):
    text = cluster.kubectl("describe", "pod", name, "-n", namespace)
    return text if words in text else ""
