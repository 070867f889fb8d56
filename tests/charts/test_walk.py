"""From nothing to a cluster with Fairgate and back, as a platform engineer goes: helm, kubectl, fairgate.

The API server keeps an audit log: at the end every right that the chart grants was needed, and none was missing.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.charts.helm import NAMESPACE, HelmError
from tests.charts.installed import prepared
from tests.charts.rights import RightsAudit
from tests.charts.steady import creating
from tests.control_plane.cleanup import ADMISSION, TEAM_LEDGERS
from tests.control_plane.kubectl import KubectlError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.observe.alerting import API_SERVER
from tests.scenarios import serving
from tests.scenarios.evictor import alive
from tests.scenarios.serving import FAIRGATE, ROOT, TIER

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("helm_binary")]

SAMPLE = (ROOT / "policies" / "default" / "policy.yaml").read_text()
A, B, GUESTS = "team-a", "team-b", "guests"
FAILED_CLOSED, FAILED_OPEN = sorted(API_SERVER, reverse=True)
VICTIMS = "fairgate_reclaim_victims_total"
# A team that only borrows, none of whose pods is evicted. It leaves with the upgrade.
GUESTS_SECTION = f"""\
  - name: {GUESTS}
    namespaces: [{GUESTS}]
    gpus: {{limit: 8}}
reclaim: {{protect: [{GUESTS}]}}
"""
POLICY = SAMPLE.replace("placement:", f"{GUESTS_SECTION}placement:")
EDITED = POLICY.replace(
    "    gpus: {limit: 8}", "    namespaceSelector: {matchLabels: {is-guest: always}}\n    gpus: {limit: 8}"
)
EDITED = EDITED.replace("namespaces: [kube-system]", "namespaces: [kube-system, monitoring]")
BROKEN = POLICY.replace("limit: 8", "limit: eight")
# Lifetimes so short that the run sees certificates renewed; a drain so long that no creation meets a closed connection.
FLAGS = ("--set", "certs.lifetime=20s,certs.caLifetime=60s,server.drainSeconds=2")
POLICY_OBJECT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fairgate-policy"
REGISTERED = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")


@pytest.fixture
def cluster(start_control_plane):
    # Without streams Fairgate lists as on older API servers, and PodGroups exist: both need further rights.
    flags = ["--feature-gates=WatchList=false,GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"]
    running = start_control_plane(audit=True, extra_args={"kube-apiserver": flags})
    make_nodes(running, 4)
    for name in (A, B, GUESTS):
        make_namespace(running, name)
    return running


def test_from_nothing_to_enforced_policy_upgraded_and_back(cluster, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "sample.yaml").write_text(SAMPLE)
    (tmp_path / "broken.yaml").write_text(BROKEN)
    with prepared(cluster) as release:
        audit = RightsAudit(release)
        refused_before_it_lands(cluster, release, tmp_path / "broken.yaml")
        said = release.deploy("--set-file", f"policy={tmp_path / 'policy.yaml'}", *FLAGS)
        assert "enforce: enforce" in said
        created_while_no_server_was_ready_yet(cluster)
        release.roll_out()
        release.wait_asked(A)
        release.wait_closed()
        refused_labelled_and_placed(cluster)
        evicted_and_promoted(cluster)
        left_waiting(cluster)
        seen(cluster, release, tmp_path / "policy.yaml")
        edited(cluster, release)
        audit.note()
        refused_before_it_lands(cluster, release, tmp_path / "broken.yaml")
        upgraded_under_load(cluster, release, tmp_path / "sample.yaml")
        audit.note()
        uninstalled_while_down(cluster, release)
        audit.check(cluster.audit_events())


def refused_before_it_lands(cluster, release, broken):
    """A broken policy stops helm before any object of the release is changed, and the check reports why."""
    objects = [f"{ADMISSION}/validatingwebhookconfigurations/fairgate", POLICY_OBJECT]
    before = [content(cluster, path) for path in objects]
    with pytest.raises(HelmError, match="fairgate-policy-check"):
        release.deploy("--set-file", f"policy={broken}")
    assert "gpus.limit" in release.hooks.printed
    assert "eight" in release.hooks.printed
    assert [content(cluster, path) for path in objects] == before


def content(cluster, path):
    """What Helm writes of an object; Fairgate renews the caBundle at any time."""
    if not cluster.api.exists(path):
        return None
    found = cluster.api.get(path)
    for webhook in found.get("webhooks", ()):
        webhook["clientConfig"].pop("caBundle", None)
    return {field: value for field, value in found.items() if field != "metadata"}


def created_while_no_server_was_ready_yet(cluster):
    """Webhooks of `enforce` are registered without a server: GPU pods are created as before."""
    kubectl_create(cluster, A, "early", gpus=1)
    assert counted(cluster, FAILED_OPEN, name="validate.fairgate.dev") > 0
    assert TIER not in get_pod(cluster, A, "early")["metadata"].get("labels", {})
    cluster.kubectl("delete", "pod", "early", "-n", A, "--wait")


def refused_labelled_and_placed(cluster):
    with pytest.raises(KubectlError, match=r"exceeded quota: [\s\S]*limit"):
        kubectl_create(cluster, B, "greedy", gpus=24)
    for name in ("a1", "a2", "a3", "a4"):
        kubectl_create(cluster, A, name)
        wait_bound(cluster, A, name)
    assert [tier(cluster, A, name) for name in alive(cluster, A)] == ["guaranteed"] * 2 + ["preemptible"] * 2


def evicted_and_promoted(cluster):
    kubectl_create(cluster, B, "b1")
    wait_bound(cluster, B, "b1")
    [borrower] = [name for name in alive(cluster, A) if tier(cluster, A, name) == "preemptible"]
    cluster.kubectl("delete", "pod", "a1", "-n", A)
    wait_for(cluster, lambda: tier(cluster, A, borrower) == "guaranteed", what=f"{borrower} promoted")


def left_waiting(cluster):
    """Borrowers that policy protects are on every node: a pod inside its share waits, one event per cause."""
    for number in range(4):
        create_pod(cluster, GUESTS, pod(f"g{number}", gpus=2, cpu="1", memory="4Gi"))
        wait_bound(cluster, GUESTS, f"g{number}")
    create_pod(cluster, B, pod("b2", gpus=10, cpu="1", memory="4Gi"))
    nodes = [node["metadata"]["name"] for node in cluster.api.list("/api/v1/nodes")]
    wait_for(cluster, lambda: event_counts(cluster, "CannotReclaim"), what="an Event on b2")
    cluster.kubectl("cordon", *nodes)
    wait_for(cluster, lambda: len(event_counts(cluster, "CannotReclaim")) > 1, what="an Event of another cause on b2")
    cluster.kubectl("uncordon", *nodes)
    wait_for(cluster, lambda: 2 in event_counts(cluster, "CannotReclaim"), what="a second Event of the first")
    cluster.kubectl("delete", "pod", "b2", "-n", B)


def seen(cluster, release, policy):
    assert release.metric("fairgate_decisions_total", outcome="deny") > 0
    victims = sum(serving.total(release.get_evictor("/metrics", pod=n), VICTIMS, team=A) for n in range(2))
    assert victims == 1
    command = [*FAIRGATE, "status", "--policy", policy, "--kubeconfig", cluster.kubeconfig]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(team in shown for team in (A, B, GUESTS))


def edited(cluster, release):
    """The policy is edited in its ConfigMap: broken edits are not applied, a valid one changes the registration."""
    for text in (BROKEN, POLICY, BROKEN):
        edit(cluster, release, text)
        want = [text is BROKEN] * 2
        wait_for(
            cluster,
            lambda want=want: ["broken" in release.get("/readyz", pod=n) for n in range(2)] == want,
            what="the edit read by all",
        )
    edit(cluster, release, EDITED)
    for plural, name, want in (
        ("validatingwebhookconfigurations", "fairgate", "monitoring"),
        ("validatingadmissionpolicies", "fairgate-devices", "monitoring"),
        ("validatingadmissionpolicies", "fairgate-tenancy", "is-guest"),
    ):
        path = f"{ADMISSION}/{plural}/{name}"
        wait_for(cluster, lambda path=path, want=want: want in registered(cluster, path), what=f"{name} in step")


def registered(cluster, path):
    """An object without what kubectl and helm wrote on it."""
    found = cluster.api.get(path)
    return json.dumps(found.get("webhooks") or found["spec"])


def upgraded_under_load(cluster, release, policy):
    assert cluster.api.exists(f"{TEAM_LEDGERS}/{GUESTS}")
    with creating(cluster, B) as steady:
        release.upgrade("--set", "replicaCount=3,server.drainSeconds=0", "--set-file", f"policy={policy}")
        wait_for(
            cluster,
            lambda: not cluster.api.exists(f"{TEAM_LEDGERS}/{GUESTS}"),
            what="the ledger of a team that left gone",
        )
    assert not steady.failed
    assert steady.created > 10


def uninstalled_while_down(cluster, release):
    release.stop()
    with pytest.raises(KubectlError, match="failed calling webhook"):
        kubectl_create(cluster, B, "while-down")
    assert counted(cluster, FAILED_CLOSED, name="validate.fairgate.dev", error_type="calling_webhook_error") > 0
    assert 'release "fairgate" uninstalled' in release.uninstall()
    assert "Fairgate is uninstalled" in release.hooks.printed
    for plural in REGISTERED:
        left = [found["metadata"]["name"] for found in cluster.api.list(f"{ADMISSION}/{plural}")]
        assert not [name for name in left if "fairgate" in name]
    kubectl_create(cluster, B, "as-before", gpus=1)
    assert TIER not in get_pod(cluster, B, "as-before")["metadata"].get("labels", {})
    wait_bound(cluster, B, "as-before")


def counted(cluster, metric, **labels):
    """The API server's own metric, on which alerts are built."""
    # the parser adds this suffix to every counter
    return serving.total(cluster.kubectl("get", "--raw", "/metrics"), f"{metric}_total", **labels)


def kubectl_create(cluster, namespace, name, gpus=8):
    made = json.dumps(pod(name, gpus=gpus, cpu="1", memory="4Gi"))
    return cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=made)


def tier(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"]["labels"].get(TIER)


def event_counts(cluster, reason):
    """Return the count of each Event with a reason."""
    return [event["count"] for event in cluster.api.list("/api/v1/events") if event["reason"] == reason]


def edit(cluster, release, text):
    cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}/configmaps/fairgate-policy", {"data": {"policy.yaml": text}})
    release.kubelet.sync()
