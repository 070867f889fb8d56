"""From nothing to a cluster with Fairgate and back, as a platform engineer goes: helm, kubectl, fairgate.

The control plane keeps an audit log. At the end every right that the chart grants was needed, and none was missing.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.charts.helm import kinds, render
from tests.charts.installed import EVICTOR, SERVER, Installed, prepared
from tests.charts.rights import asked, forbidden, granted
from tests.control_plane.api import ApiError
from tests.control_plane.cleanup import TEAM_LEDGERS
from tests.control_plane.kubectl import KubectlError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import alive
from tests.scenarios.serving import FAIRGATE, ROOT, TIER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.usefixtures("helm_binary")]

POLICY = ROOT / "policies" / "default" / "policy.yaml"
A, B, C = "team-a", "team-b", "visitors"
VISITORS = f"  - name: {C}\n    namespaces: [{C}]\n    gpus: {{limit: 4}}\n"
# So short that the run sees certificates and a CA renewed.
CERTIFICATES = ("--set", "certs.lifetime=20s,certs.caLifetime=60s")
WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")


@pytest.fixture
def cluster(start_control_plane):
    running = start_control_plane(audit=True)
    make_nodes(running, 4)
    for name in (A, B, C):
        make_namespace(running, name)
    return running


@pytest.fixture
def release(cluster):
    with prepared(cluster) as made:
        yield made


def ask(cluster, namespace, name, gpus=8):
    create_pod(cluster, namespace, pod(name, gpus=gpus, cpu="1", memory="4Gi"))


def tier(cluster, namespace, name):
    return get_pod(cluster, namespace, name)["metadata"]["labels"].get(TIER)


def status(cluster):
    command = [*FAIRGATE, "status", "--policy", POLICY, "--kubeconfig", cluster.kubeconfig]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@contextmanager
def creating(cluster, namespace) -> Iterator[list[str]]:
    """Create and delete a GPU pod over and over, until the end of the block; gives what went wrong."""
    stop, failed = threading.Event(), []
    done = []

    def run() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"steady-{number}"
            try:
                ask(cluster, namespace, name, gpus=1)
                done.append(tier(cluster, namespace, name))
            except ApiError as error:
                # 429 says "again, at once": kubectl and the controllers do, this bare client does not.
                if error.status != 429:
                    failed.append(str(error))
                continue
            cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join(60)
        assert len(done) > 10
        assert None not in done, "a pod slipped by"


def test_from_nothing_to_enforced_policy_upgraded_and_back(cluster, release, tmp_path):
    tokens = Tokens(release)
    (tmp_path / "policy.yaml").write_text(POLICY.read_text().replace("placement:", f"{VISITORS}placement:"))
    assert "enforce: enforce" in release.install("--set-file", f"policy={tmp_path / 'policy.yaml'}", *CERTIFICATES)
    release.wait_asked(A)

    refused_labelled_and_placed(cluster)
    evicted(cluster, release)
    seen(cluster, release)
    tokens.note()
    with creating(cluster, B) as failed:
        upgraded(cluster, release)
        tokens.note()
    assert not failed

    release.stop()
    with pytest.raises(KubectlError, match="failed calling webhook"):
        cluster.kubectl("create", "-f", "-", "-n", B, stdin=manifest("while-down"))
    assert 'release "fairgate" uninstalled' in release.helm("uninstall", "fairgate")
    for plural in WEBHOOKS:
        found = cluster.api.list(f"/apis/admissionregistration.k8s.io/v1/{plural}")
        assert not [each for each in found if "fairgate" in each["metadata"]["name"]]
    ask(cluster, B, "as-before", gpus=1)
    assert TIER not in get_pod(cluster, B, "as-before")["metadata"].get("labels", {})
    wait_bound(cluster, B, "as-before")
    tokens.check(cluster)


def manifest(name):
    import json

    return json.dumps(pod(name, gpus=1, cpu="1", memory="4Gi"))


def refused_labelled_and_placed(cluster):
    with pytest.raises(KubectlError, match="exceeded quota: .*limit"):
        cluster.kubectl("create", "-f", "-", "-n", B, stdin=manifest("greedy").replace('"1"', '"24"'))
    for name in ("a1", "a2", "a3", "a4"):
        ask(cluster, A, name)
        wait_bound(cluster, A, name)
    assert [tier(cluster, A, name) for name in ("a1", "a2", "a3", "a4")] == ["guaranteed"] * 2 + ["preemptible"] * 2


def evicted(cluster, release):
    ask(cluster, B, "b1")
    wait_bound(cluster, B, "b1")
    assert len(alive(cluster, A)) == 3
    # A guaranteed pod ends: the one that borrows takes its place.
    borrower = next(name for name in alive(cluster, A) if tier(cluster, A, name) == "preemptible")
    cluster.api.delete(f"/api/v1/namespaces/{A}/pods/a1")
    wait_for(cluster, lambda: tier(cluster, A, borrower) == "guaranteed", what=f"{borrower} promoted")


def seen(cluster, release):
    assert release.metric("fairgate_decisions_total", outcome="deny") > 0
    assert "fairgate_reclaim_victims_total" in release.get_evictor("/metrics")
    shown = status(cluster)
    assert A in shown
    assert B in shown


def upgraded(cluster, release):
    ask(cluster, C, "c1", gpus=1)
    cluster.api.delete(f"/api/v1/namespaces/{C}/pods/c1", {"gracePeriodSeconds": 0})
    assert cluster.api.exists(f"{TEAM_LEDGERS}/visitors")
    release.upgrade("--set", "replicaCount=3", "--set-file", f"policy={POLICY}")
    wait_for(cluster, lambda: not cluster.api.exists(f"{TEAM_LEDGERS}/visitors"), what="the ledger of a team that left")


class Tokens:
    """Whom the containers were to the API server."""

    def __init__(self, release: Installed) -> None:
        self._release = release
        self._tokens: dict[str, set[str]] = {SERVER: set(), EVICTOR: set()}

    def note(self) -> None:
        for made in self._release.pods:
            for name, container in made.items():
                self._tokens[name].add(container.token)

    def check(self, cluster) -> None:
        time.sleep(1)
        events = cluster.audit_events()
        roles = {made["metadata"]["name"] + made["kind"]: made for made in kinds(render(), "Role", "ClusterRole")}
        problems = []
        for component, parts in ((SERVER, ("server", "certs", "registration")), (EVICTOR, ("evictor",))):
            rights = {right for role in roles.values() if role["metadata"]["name"].removeprefix("fairgate-") in parts for right in granted(role)}
            found = set().union(*(asked(events, token=token) for token in self._tokens[component]))
            problems += [f"{component}: forbidden {line}" for token in self._tokens[component] for line in forbidden(events, token=token)]
            problems += [f"{component}: not its own {each}" for each in sorted(found) if not any(right.covers(each) for right in rights)]
            problems += [f"{component}: unused {right}" for right in sorted(rights) if not any(right.covers(each) for each in found)]
        assert not problems, "\n".join(problems)
