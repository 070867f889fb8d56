"""Certificates on a real control plane: created once, rotated under load, and only the API server is accepted."""

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.commands import API_SERVER
from tests.control_plane.objects import pod
from tests.control_plane.pki import CLIENT_AUTH, make_authority
from tests.control_plane.workbench import create_pod, wait_for
from tests.scenarios import serving
from tests.scenarios.replicas import ADMISSION, Handshakes, replicas

pytestmark = pytest.mark.cluster

SHORT_LIFETIMES = ("--cert-lifetime", "12s", "--ca-lifetime", "40s")
LAG_SECONDS = 1.0  # of the 2 s delay before a CA of 40 s signs


@pytest.mark.promise
def test_replicas_that_start_together_create_one_secret_and_register_its_ca(cluster):
    with replicas(cluster) as running:
        running.register()
        created = [line for line in running.events("certificates changed") if line["change"] == "created"]
        assert len(created) == 1
        with Handshakes(running, lag_seconds=0) as shakes:
            wait_for(cluster, lambda: shakes.done >= 6, what="two handshakes with each replica")
        assert shakes.failed == []
        assert shakes.serials == {running.leaf().serial_number}, "all serve the same certificate"
        create_pod(cluster, running.namespace, pod("a", gpus=1))
        before = running.trusted()
        running.cluster.kubectl("apply", "-f", "-", stdin=running.manifests())
        running.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=running.manifests())
        assert running.trusted() == before, "applying the manifests again takes nothing away"
        keys = [content for name, content in running.files().items() if name.endswith(".key")]
        logs = "".join(cluster.processes.log_path(name).read_text() for name in running.names)
        assert serving.leaked(logs, keys=keys, kubeconfig=cluster.kubeconfig) == []


@pytest.mark.promise
@pytest.mark.parametrize("exchanges", [1, pytest.param(3, marks=pytest.mark.long)])
def test_leaf_and_ca_are_rotated_under_load_without_a_failed_handshake_or_creation(cluster, exchanges):
    with replicas(cluster, *SHORT_LIFETIMES) as running:
        running.register()
        failed, made, stop = [], [], threading.Event()

        def create():
            while not stop.is_set():
                try:
                    create_pod(cluster, running.namespace, pod(f"pod-{len(made) + len(failed)}", gpus=1))
                    made.append(running)
                except ApiError as error:
                    failed.append(str(error))

        creating = threading.Thread(target=create)
        with Handshakes(running, lag_seconds=LAG_SECONDS) as shakes:
            creating.start()
            try:
                wait_for(
                    cluster,
                    lambda: changes(running).count("forgotten") >= exchanges,
                    what=f"CAs exchanged {exchanges} times",
                    timeout=60 * exchanges,
                    poll=0.5,
                )
            finally:
                stop.set()
                creating.join(30)
        assert failed == []
        assert shakes.failed == []
        assert len(shakes.serials) >= 1 + 2 * exchanges, "and leaves in between"
        assert len(made) > len(shakes.serials), "pods were created all along"
        assert changes(running).count("created") == 1
        assert changes(running).count("taken_over") >= exchanges


def changes(running):
    return [line["change"] for line in running.events("certificates changed")]


def test_a_ca_bundle_that_is_deleted_comes_back_and_a_foreign_ca_in_it_stays(cluster):
    with replicas(cluster, count=1) as running:
        running.register()
        ours = running.trusted()
        path = f"{ADMISSION}/validatingwebhookconfigurations/fairgate"
        foreign = cluster.authority.pem.decode()
        cluster.kubectl("delete", "validatingwebhookconfiguration", "fairgate")
        cluster.kubectl("apply", "-f", "-", stdin=running.manifests())
        wait_for(cluster, lambda: running.trusted() == ours, what="the caBundle filled in again")
        webhooks = cluster.api.get(path)["webhooks"]
        for webhook in webhooks:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(foreign.encode()).decode()
        cluster.api.patch(path, {"webhooks": webhooks})
        wait_for(cluster, lambda: ours in running.trusted(), what="Fairgate's CA added")
        assert foreign in running.trusted()


def test_with_a_client_ca_only_the_api_servers_certificate_is_accepted(start_control_plane, tmp_path):
    callers = make_authority("callers")
    pair = callers.issue("kube-apiserver", usage=CLIENT_AUTH)
    identity = tmp_path / "webhooks.kubeconfig"
    user = {
        name: base64.b64encode(pem).decode()
        for name, pem in (("client-certificate-data", pair.certificate), ("client-key-data", pair.key))
    }
    identity.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}))
    plugins = [
        {
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(identity),
            },
        }
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    admission = tmp_path / "admission.json"
    admission.write_text(
        json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins})
    )
    (tmp_path / "callers.crt").write_bytes(callers.pem)
    own = start_control_plane(extra_args={API_SERVER: [f"--admission-control-config-file={admission}"]})
    with replicas(own, "--client-ca", tmp_path / "callers.crt", count=1) as running:
        running.register()
        create_pod(own, running.namespace, pod("a", gpus=1))
        create_pod(own, running.namespace, pod("b", gpus=1))
        context = ssl.create_default_context(cadata=running.trusted())
        request = urllib.request.Request(f"{running.url}/validate", data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(request, context=context, timeout=60)
        assert json.loads(refused.value.read())["code"] == "CertificateRequired"
        with urllib.request.urlopen(f"{running.url}/readyz", context=context, timeout=60) as answer:
            assert answer.status == 200
