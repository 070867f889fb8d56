"""The control plane itself: it starts, its parts can be stopped and restarted, its errors are readable."""

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane, find_binaries
from tests.control_plane.kubectl import KubectlError
from tests.control_plane.objects import pod
from tests.control_plane.pki import make_authority
from tests.control_plane.processes import ComponentError
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
    wait_phase,
)

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]


def test_it_serves_the_version_of_its_binary_with_every_component_running(cluster):
    said = subprocess.run([find_binaries()["kube-apiserver"], "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"Kubernetes {cluster.api.get('/version')['gitVersion']}\n"
    want = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
    assert want <= set(cluster.processes.pids())


def test_kubectl_reaches_it(cluster, namespace):
    cluster.kubectl.apply([pod("a", namespace=namespace), pod("b", namespace=namespace)])
    names = [item["metadata"]["name"] for item in cluster.kubectl.json("get", "pods", "-n", namespace)["items"]]
    assert names == ["a", "b"]


def test_an_error_of_kubectl_shows_what_the_user_would_read(cluster):
    with pytest.raises(KubectlError, match=r'kubectl get pod missing ended with 1:\n.*pods "missing" not found'):
        cluster.kubectl("get", "pod", "missing")


def test_kubectl_leaves_nothing_in_the_home_folder(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster.kubectl("get", "nodes")
    assert list(tmp_path.iterdir()) == []


def test_a_new_namespace_takes_a_pod_at_once(cluster):
    namespace = make_namespace(cluster, labels={"team": "vision"})
    assert create_pod(cluster, namespace, pod("a"))["spec"]["serviceAccountName"] == "default"
    assert cluster.api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]["team"] == "vision"


def test_a_plain_user_may_do_only_what_rbac_grants(cluster, namespace):
    alice = cluster.kubectl.with_kubeconfig(cluster.user_kubeconfig("alice", groups=["ml"], namespace=namespace))
    whoami = alice.json("auth", "whoami")["status"]["userInfo"]
    assert (whoami["username"], "ml" in whoami["groups"]) == ("alice", True)
    with pytest.raises(KubectlError, match='User "alice" cannot list resource "pods"'):
        alice("get", "pods")
    cluster.kubectl("create", "rolebinding", "ml", "--clusterrole=edit", "--group=ml", "-n", namespace)
    wait_for(cluster, lambda: alice.run("get", "pods").returncode == 0, what="the role binding in force")


def test_a_service_account_has_a_kubeconfig_of_its_own(cluster, namespace):
    robot = cluster.kubectl.with_kubeconfig(cluster.service_account_kubeconfig(namespace))
    username = robot.json("auth", "whoami")["status"]["userInfo"]["username"]
    assert username == f"system:serviceaccount:{namespace}:default"


def test_objects_survive_a_killed_api_server(cluster, namespace):
    cluster.stop("kube-apiserver", signal.SIGKILL)
    assert "kube-apiserver" not in cluster.processes.pids()
    cluster.start("kube-apiserver")
    assert cluster.api.exists(f"/api/v1/namespaces/{namespace}")


def test_a_frozen_component_does_nothing_until_it_is_resumed(cluster, namespace):
    make_nodes(cluster, 1)
    cluster.pause("kube-scheduler")
    create_pod(cluster, namespace, pod("a"))
    create_pod(cluster, namespace, pod("bound-by-hand", nodeName="node-0"))
    wait_phase(cluster, namespace, "bound-by-hand", "Running")  # the others continue
    assert "nodeName" not in get_pod(cluster, namespace, "a")["spec"]
    cluster.resume("kube-scheduler")
    assert wait_bound(cluster, namespace, "a") == "node-0"


def no_luck():
    raise AssertionError("no luck")


def test_a_failed_wait_reports_the_last_value_and_the_pods(cluster, namespace):
    create_pod(cluster, namespace, pod("lonely"))
    with pytest.raises(AssertionError, match=rf"still not: a miracle[\s\S]*no luck[\s\S]*{namespace}/lonely: Pending"):
        wait_for(cluster, no_luck, what="a miracle", timeout=0.5)


class QuicklyReady(ControlPlane):
    """Assumes that the API server serves: the components behind it can then be replaced."""

    def _is_api_ready(self):
        return True

    def _has_default_service_account(self):
        return "kwok" not in self.processes.pids()  # as it is while the last one has not ended yet


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("component", "content", "want"),
    [
        pytest.param("etcd", "\x7fELF", r"etcd: \S+ cannot be run \(Exec format error\)", id="corrupt"),
        pytest.param(
            "etcd", "#!/bin/sh\necho bad disk; exit 5", r"etcd ended with exit code 5[\s\S]*bad disk", id="ends"
        ),
        pytest.param(
            "kwok", "#!/bin/sh\necho no stages; exit 1", r"kwok ended with exit[\s\S]*no stages", id="last one"
        ),
    ],
)
@pytest.mark.usefixtures("built_control_plane")
def test_a_component_that_does_not_start_is_an_error_with_its_log(tmp_path, component, content, want):
    others = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
    stand_ins = {name: script(tmp_path / name, "#!/bin/sh\nexec sleep 600") for name in others}
    binaries = find_binaries() | stand_ins | {component: script(tmp_path / component, content)}
    with pytest.raises(ComponentError, match=want):
        QuicklyReady(binaries)


class DenyEverything(BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        denial = {"uid": review["request"]["uid"], "allowed": False, "status": {"code": 403, "message": "not today"}}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": denial}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def denying_webhook(tmp_path):
    authority = make_authority()
    pair = authority.issue()
    (tmp_path / "tls.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.pem")
    with HTTPServer(("127.0.0.1", 0), DenyEverything) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/validate", authority
        server.shutdown()
        thread.join()


def test_the_api_server_calls_a_webhook_on_loopback(cluster, namespace, denying_webhook):
    url, authority = denying_webhook
    webhook = {
        "name": "no-pods.fairgate.test",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority.pem).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "no-pods"},
        "webhooks": [webhook],
    }
    cluster.kubectl.apply(configuration)

    def denied():
        with pytest.raises(ApiError, match="not today") as refusal:
            create_pod(cluster, namespace, pod("a"))
        return refusal.value.status == 403

    wait_for(cluster, denied, what="the webhook called")


@pytest.mark.usefixtures("built_control_plane")
def test_a_control_plane_ends_with_the_last_file_that_needs_one(tmp_path):
    needs = "from pathlib import Path\ndef test_a(control_plane):\n    etcd = control_plane.processes.pids()['etcd']\n"
    (tmp_path / "test_a.py").write_text(f"{needs}    Path('pid').write_text(str(etcd))\n")
    free = "from pathlib import Path\ndef test_b():\n    assert not Path('/proc', Path('pid').read_text()).exists()\n"
    (tmp_path / "test_b.py").write_text(free)
    plugins = ["-p", "tests.control_plane.fixtures", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = inherited | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout
