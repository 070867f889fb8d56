"""Without Fairgate: what a user does who has kubectl and nothing else, and what a downgrade and a crash leave."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import pytest

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import find_binaries
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_nodes, wait_bound, wait_for
from tests.docs import pages
from tests.scenarios.evictor import fill
from tests.scenarios.serving import wait_policy, write_policy
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate
from tests.scenarios.uninstalling import HOLD, TAINT, gated, register
from webhook.kube.registration.static_files import REGISTERED_GUARDS, WEBHOOKS

pytestmark = pytest.mark.cluster

QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\nqueue: {depth: 2000}\n"
SMALL = {"gpus": 1, "cpu": "100m", "memory": "256Mi"}
RUNBOOKS = pages.ROOT / "docs" / "tasks" / "runbooks.md"


def line_up(fairgate: FairgateServer, count: int) -> None:
    """Put so many pods into line, as fast as the API server takes them."""
    cluster = fairgate.cluster
    apis = [Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token) for _ in range(8)]

    def create(number: int) -> None:
        path = f"/api/v1/namespaces/{fairgate.team_a}/pods"
        for _ in range(20):
            try:
                apis[number % len(apis)].create(path, pod(f"waits-{number:04}", **SMALL))
            except ApiError as error:
                if error.status == HTTPStatus.TOO_MANY_REQUESTS:
                    continue
                raise
            return
        pytest.fail(f"waits-{number:04} was never created")

    with ThreadPoolExecutor(max_workers=len(apis)) as pool:
        list(pool.map(create, range(count)))
    for api in apis:
        api.close()


def as_written(cluster, *, kubeconfig=None) -> None:
    """Paste the runbook's commands into a shell that has kubectl and the usual tools."""
    [block] = [each.text for each in pages.blocks(RUNBOOKS) if "schedulingGates" in each.text]
    folder = cluster.folder / "only-kubectl"
    folder.mkdir(exist_ok=True)
    if not (folder / "kubectl").exists():
        (folder / "kubectl").symlink_to(find_binaries()["kubectl"])
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
    }
    done = subprocess.run(["bash"], input=block, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_crashes_with_a_line_of_a_thousand_and_kubectl_alone_lets_them_go(cluster):
    [first, *_] = make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
        fill(cluster, fairgate.team_a, 2, gpus=10)
        line_up(fairgate, 1000)
        assert len(gated(cluster)) == 1000
        fairgate.stop(signal.SIGKILL)
        hold = {"metadata": {"annotations": {HOLD: "{}"}}, "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
        cluster.api.patch(f"/api/v1/nodes/{first}", hold)
        with pytest.raises(ApiError, match="failed calling webhook"):
            create_pod(cluster, fairgate.team_a, pod("blocked", **SMALL))
        as_written(cluster)
        assert not gated(cluster)
        assert not any(cluster.api.exists(each.path) for each in (*WEBHOOKS, *REGISTERED_GUARDS))
        assert not cluster.api.get(f"/api/v1/nodes/{first}")["spec"].get("taints")
        create_pod(cluster, fairgate.team_a, pod("as-before", **SMALL))
        wait_bound(cluster, fairgate.team_a, "waits-0000")
        as_written(cluster)  # again: nothing to do is no error


def test_a_server_that_comes_back_after_a_crash_continues_with_the_line(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
        fill(cluster, fairgate.team_a, 2, gpus=10)
        line_up(fairgate, 20)
        fairgate.stop(signal.SIGKILL)
        cluster.kubectl("delete", "pod", "a00", "-n", fairgate.team_a, "--wait")
        assert len(gated(cluster)) == 20
        fairgate.start()
        wait_for(cluster, lambda: len(gated(cluster)) == 10, what="the line goes on")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_fairgate_is_scaled_down_first_whatever_kind_it_is(cluster, namespace, kind):
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"
    labels = {"app.kubernetes.io/name": "fairgate"}
    template = {"metadata": {"labels": labels}, "spec": pod("fairgate")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "fairgate", "labels": labels}
    cluster.api.create(path, {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
    as_written(cluster)
    assert cluster.api.get(f"{path}/fairgate")["spec"]["replicas"] == 0


def test_an_admin_by_rbac_is_enough(cluster, namespace, tmp_path):
    labels = {"labels": {"fairgate.dev/team": "a"}, "schedulingGates": [{"name": "fairgate.dev/queue"}]}
    for number in range(3):
        create_pod(cluster, namespace, pod(f"waits-{number}", **SMALL, **labels))
    register(cluster, tmp_path)
    cluster.kubectl("create", "clusterrolebinding", "grace", "--clusterrole=cluster-admin", "--user=grace")
    wait_for(
        cluster,
        lambda: cluster.kubectl.run("--as=grace", "auth", "can-i", "delete", "nodes").stdout == "yes\n",
        what="grace is an admin",
    )
    as_written(cluster, kubeconfig=cluster.user_kubeconfig("grace"))
    assert not gated(cluster)
    assert not any(cluster.api.exists(each.path) for each in (*WEBHOOKS, *REGISTERED_GUARDS))


def test_before_a_downgrade_shadow_empties_the_line_and_the_older_version_finds_nothing_to_serve(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES, is_own=True) as fairgate:
        fill(cluster, fairgate.team_a, 2, gpus=10)
        line_up(fairgate, 50)
        file = fairgate.policy / "teams.yaml"
        write_policy(fairgate.policy, file.read_text() + "enforce: shadow\n")
        wait_policy(cluster, fairgate.policy, lambda: fairgate.get("/readyz"))
        wait_for(cluster, lambda: not gated(cluster), what="the line is empty")
        fairgate.stop()
        for each in (*WEBHOOKS, *REGISTERED_GUARDS):
            cluster.api.delete(each.path)
        wait_for(
            cluster,
            lambda: len([each for each in cluster.api.list("/api/v1/pods") if each["spec"].get("nodeName")]) == 22,
            what="all GPUs are in use",
        )
