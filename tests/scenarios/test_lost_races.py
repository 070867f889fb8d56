"""Charges that cannot be written for a while: users do not notice, and a caller that disconnects is not charged."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.control_plane.api import Api, ApiError
from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.standing_fairgate import TEAM_LEDGERS, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
POLICY = "no-charges"
REFUSES_LEDGERS = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["fairgate.dev"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["teamledgers"],
                    }
                ]
            },
            "validations": [{"expression": "false", "message": "not now"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    },
]


@contextmanager
def unwritable_ledgers(cluster):
    """Have the API server refuse every write of a ledger until the end of the block."""
    cluster.kubectl.apply(REFUSES_LEDGERS)

    def is_refused():
        try:
            cluster.api.patch(f"{TEAM_LEDGERS}/a", {"metadata": {"labels": {"probe": "x"}}}, dryRun="All")
        except ApiError as error:
            return "not now" in error.message
        return False

    try:
        wait_for(cluster, is_refused, what="writes of ledgers refused")
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, POLICY, "--ignore-not-found")


def replicated(kind, name, count, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(gpus=1, **SIZE)}
    body = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def asked_again(fairgate):
    return fairgate.metric("fairgate_decisions_total", outcome="retry")


@pytest.mark.promise
def test_controllers_and_kubectl_retry_without_showing_it(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate, ThreadPoolExecutor(1) as pool:
        wait_for(cluster, lambda: fairgate.ledger("a"), what="the team's ledger")
        with unwritable_ledgers(cluster):
            manifest = json.dumps(pod("by-hand", gpus=1, **SIZE))
            by_hand = pool.submit(cluster.kubectl.run, "create", "-n", fairgate.team_a, "-f", "-", stdin=manifest)
            workloads = [
                job("train", pods=3, gpus=1, **SIZE),
                replicated("ReplicaSet", "serve", 3),
                replicated("StatefulSet", "store", 2, serviceName="store", podManagementPolicy="Parallel"),
            ]
            cluster.kubectl.apply(workloads, "-n", fairgate.team_a)
            wait_for(cluster, lambda: asked_again(fairgate) >= 4, what="one of each was retried")
            assert list_pods(cluster, fairgate.team_a) == []
        wait_for(cluster, lambda: len(list_pods(cluster, fairgate.team_a)) == 9, what="all pods of all four")
        done = by_hand.result()
        assert (done.returncode, done.stderr) == (0, "")
        events = cluster.kubectl.json("get", "events", "-n", fairgate.team_a)["items"]
        assert [event["message"] for event in events if event["reason"] == "FailedCreate"] == []


def test_a_client_that_disconnects_is_not_charged(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        wait_for(cluster, lambda: fairgate.ledger("a"), what="the team's ledger")
        impatient = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)
        with unwritable_ledgers(cluster), ThreadPoolExecutor(1) as pool:
            path = f"/api/v1/namespaces/{fairgate.team_a}/pods"
            asking = pool.submit(impatient.create, path, pod("gone", gpus=5, **SIZE))
            writes = fairgate.metric("fairgate_ledger_writes_total")
            wait_for(cluster, lambda: fairgate.metric("fairgate_ledger_writes_total") > writes, what="writes are tried")
            impatient._connection.sock.shutdown(socket.SHUT_RDWR)
            assert isinstance(asking.exception(), OSError)
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="nothing charged", timeout=90)
        assert list_pods(cluster, fairgate.team_a) == []
        wait_for(cluster, lambda: fairgate.ledger("a")["ledger"]["inFlight"] == [], what="an empty ledger")
