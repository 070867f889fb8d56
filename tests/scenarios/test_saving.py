"""Saved work: a loop of docs/tasks/saving.md receives Fairgate's notice, saves, states it, and ends.

The container is a process of this machine, its files are those of a pod that KWOK plays, and the test copies the
annotation into the file, as kubelet does.
"""

import json
import signal
import sys
from contextlib import ExitStack

import pytest
import yaml
from click.testing import CliRunner

from tests.control_plane.api import Api, ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, make_nodes, wait_for
from tests.popen import killed_on_failure
from tests.saving.recipe import Container, page_files
from tests.saving.test_notice import LOOP, lines
from tests.scenarios.evictor import ask, evictor, wait_bound
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from webhook.cli.main import main
from webhook.kube.objects import keys

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


@pytest.fixture
def trainers(cluster):
    """Apply the page's rights of a trainer to a namespace."""
    made = []

    def apply(namespace):
        for each in yaml.safe_load_all(
            page_files()["trainer.yaml"].replace("namespace: vision", f"namespace: {namespace}")
        ):
            path = PATHS[each["kind"]].format(namespace)
            cluster.api.create(path, each)
            made.append(f"{path}/{each['metadata']['name']}")

    yield apply
    for path in reversed(made):
        cluster.api.delete(path)


def create_trainer(cluster, namespace, name, gpus):
    """A borrowing pod that runs as the page's service account, with the volume of the page's Job."""
    spec = yaml.safe_load(page_files()["job.yaml"])["spec"]["template"]["spec"]
    volumes = [each for each in spec["volumes"] if "downwardAPI" in each]
    labels = {TIER: "preemptible"}
    create_pod(
        cluster,
        namespace,
        pod(name, labels=labels, gpus=gpus, cpu="1", memory="4Gi", serviceAccountName="trainer", volumes=volumes),
    )


def run_as(cluster, container, namespace, name):
    """Give the container what kubelet mounts for this pod's service account."""
    uid = get_pod(cluster, namespace, name)["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/trainer/token"
    token = wait_for(cluster, lambda: cluster.api.create(path, body)["status"]["token"], what="a token of the pod")
    files = {"token": token, "namespace": namespace, "ca.crt": cluster.authority.pem.decode()}
    for file, text in files.items():
        (container.folder / "account" / file).write_text(text)


def annotation(cluster, namespace, name, key):
    return get_pod(cluster, namespace, name)["metadata"]["annotations"].get(key, "")


def test_a_loop_saves_at_the_notice_states_it_and_goes_on_and_usage_shows_what_that_saved(cluster, trainers, tmp_path):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy="reclaim: {notice: 8s}", has_history=True) as fairgate:
        namespace = fairgate.team_a
        trainers(namespace)
        for name, gpus in (("train-0", 9), ("other", 1)):
            create_trainer(cluster, namespace, name, gpus)
            wait_for(
                cluster, lambda n=name: get_pod(cluster, namespace, n)["status"]["phase"] == "Running", what="it runs"
            )
        container = Container(tmp_path / "container")
        (container.folder / "loop.py").write_text(LOOP)
        run_as(cluster, container, namespace, "train-0")
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.ports.api_server)}

        with killed_on_failure(container.start(sys.executable, "loop.py", **where)) as process, evictor(fairgate):
            wait_for(cluster, lambda: lines(container, "done"), what="the first step")
            ask(cluster, fairgate.team_b, "b", gpus=9)
            at = wait_for(cluster, lambda: annotation(cluster, namespace, "train-0", keys.EVICT_AT), what="a notice")
            container.notice(at)
            wait_for(
                cluster,
                lambda: annotation(cluster, namespace, "train-0", keys.CHECKPOINTED),
                what="a checkpoint",
            )
            assert lines(container, "saves") == ["1"]
            wait_bound(cluster, fairgate.team_b, "b")
            process.send_signal(signal.SIGTERM)  # kubelet's, at the eviction
            assert process.wait(60) == 128 + signal.SIGTERM
        assert lines(container, "saves") == ["1", "2"]
        with killed_on_failure(container.start(sys.executable, "loop.py", **where)) as process:
            (container.folder / "enough").touch()
            assert process.wait(60) == 0
        done = lines(container, "done")
        assert done == [str(step) for step in range(1, len(done) + 1)]

        fairgate.stop()
        shown = CliRunner().invoke(
            main, ["usage", "--history", str(fairgate.histories[0]), "--since", "1h", "-o", "json"]
        )
        assert shown.exit_code == 0, shown.output
        (team,) = (each for each in json.loads(shown.stdout)["usage"] if each["name"] == "a")
        assert team["saved"] > 0
        assert team["lost"] > 0
        assert team["lost"] + team["saved"] <= team["preemptible"] + 9 / 3600, "Kubernetes notes starts to the second"


def test_a_trainer_changes_no_pod_but_its_own(cluster, trainers, tmp_path):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, ExitStack() as stack:
        namespace = fairgate.team_a
        trainers(namespace)
        for name in ("train-0", "other"):
            create_trainer(cluster, namespace, name, 1)
        container = Container(tmp_path / "container")
        run_as(cluster, container, namespace, "train-0")
        token = (container.folder / "account" / "token").read_text()
        mine = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=token)
        stack.callback(mine.close)
        body = {"metadata": {"annotations": {keys.CHECKPOINTED: "2026-11-26T13:00:00Z"}}}

        def why_not():
            try:
                mine.patch(f"/api/v1/namespaces/{namespace}/pods/other", body, dryRun="All")
            except ApiError as error:
                return error.message
            return ""

        of_page = "a trainer may change no pod but its own"
        wait_for(cluster, lambda: of_page in why_not(), what="the policy is in force")
        mine.patch(f"/api/v1/namespaces/{namespace}/pods/train-0", body)
        assert annotation(cluster, namespace, "train-0", keys.CHECKPOINTED)
        assert not annotation(cluster, namespace, "other", keys.CHECKPOINTED)
