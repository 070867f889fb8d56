"""History in the chart: switched on and off by the real helm, and read from real servers through the API server."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.charts.helm import NAMESPACE, HelmError
from tests.charts.installed import DEPLOYMENT, SERVER, STATEFUL_SET, installed, prepared
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.scenarios.serving import FAIRGATE, ROOT
from webhook.kube.objects import keys
from webhook.kube.objects.keys import READER

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.usefixtures("helm_binary")]

ON = ("--set", "history.enabled=true")
OFF = ("--set", "history.enabled=false")
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/fairgate"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
SELECTOR = ",".join(f"{key}={value}" for key, value in keys.OWN_LABELS)
REFUSED = 6
KEEP = ("annotate", "-n", NAMESPACE, "deployment/fairgate", "helm.sh/resource-policy=keep")


def make_volumes(cluster):
    """Volumes for the claims of two servers, as a provisioner would make them."""
    made = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"history-{number}"},
            "spec": {
                "capacity": {"storage": "8Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": f"/nowhere/{number}"},
            },
        }
        for number in range(2)
    ]
    cluster.kubectl.apply(made)


def servers(cluster):
    """The running pods of the servers, by name."""
    found = cluster.api.list(PODS, labelSelector=SELECTOR)
    running = {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}
    return running if all(each["status"].get("podIP") for each in running.values()) else {}


def wait_servers(cluster, *wanted):
    """Wait until the pods of the servers are these, or so many."""

    def are_there():
        found = servers(cluster)
        return (set(found) == set(wanted) or (len(found),) == wanted) and found

    return wait_for(cluster, are_there, what=f"pods {wanted}")


def endpoints(cluster):
    """The pods to which the Service leads."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    slices = cluster.api.list(path, labelSelector="kubernetes.io/service-name=fairgate")
    return {each["targetRef"]["name"] for found in slices for each in found["endpoints"] or ()}


def claims(cluster):
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.api.list(CLAIMS)}


def test_switching_history_on_and_off_leaves_one_set_of_servers_and_the_service(start_control_plane):
    cluster = start_control_plane()
    make_volumes(cluster)
    make_nodes(cluster, 2)
    with prepared(cluster) as release:
        release.deploy()
        wait_servers(cluster, 2)
        service = cluster.api.get(SERVICE)

        cluster.kubectl(*KEEP)  # helm would delete it before the first of the others is ready
        release.deploy(*ON)
        stateful = ("fairgate-0", "fairgate-1")
        both = wait_servers(cluster, 4)
        assert set(stateful) < set(both)
        wait_for(cluster, lambda: endpoints(cluster) == set(both), what="the Service leads to both")
        cluster.kubectl("delete", "-n", NAMESPACE, "deployment/fairgate")
        wait_servers(cluster, *stateful)
        wait_for(cluster, lambda: endpoints(cluster) == set(stateful), what="the Service leads to the new ones")
        kept = claims(cluster)
        assert set(kept) == {"history-fairgate-0", "history-fairgate-1"}

        with pytest.raises(HelmError, match=r"volumeClaimTemplates.*field is immutable"):
            release.deploy(*ON, "--set", "history.storage=4Gi")
        assert servers(cluster).keys() == set(stateful), "a refused upgrade stops no server"
        uids = {each["metadata"]["uid"] for each in servers(cluster).values()}
        cluster.kubectl("delete", "-n", NAMESPACE, "statefulset/fairgate", "--cascade=orphan")
        release.deploy(*ON, "--set", "history.storage=4Gi")
        assert {each["metadata"]["uid"] for each in wait_servers(cluster, *stateful).values()} == uids

        release.deploy(*OFF)
        assert not cluster.api.exists(STATEFUL_SET)
        wait_for(cluster, lambda: not set(stateful) & set(servers(cluster)), what="the StatefulSet's pods gone")
        wait_servers(cluster, 2)
        assert claims(cluster) == kept, "what was recorded stays"
        release.deploy(*ON)
        assert not cluster.api.exists(DEPLOYMENT)
        wait_servers(cluster, *stateful)
        assert claims(cluster) == kept
        assert cluster.api.get(SERVICE)["metadata"]["uid"] == service["metadata"]["uid"]
        assert cluster.api.get(SERVICE)["spec"]["clusterIP"] == service["spec"]["clusterIP"]


def usage(kubeconfig):
    """`fairgate usage` as a process, without any file or URL."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [*FAIRGATE, "usage", "--since", "1h", "-o", "json"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def shown(kubeconfig, team):
    """What `fairgate usage` shows of a team."""
    done = usage(kubeconfig)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["usage"]}.get(team, {})


def test_usage_of_every_server_is_read_through_the_api_server(start_control_plane, tmp_path):
    cluster = start_control_plane()
    make_volumes(cluster)
    make_nodes(cluster, 2)
    team = make_namespace(cluster)
    (tmp_path / "policy.yaml").write_text(
        "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams:\n"
        f"  - {{name: {team}, namespaces: [{team}], gpus: {{guaranteed: 8, limit: 8}}}}\n"
    )
    flags = ("--set", "page.enabled=true,history.readers={finance},viewer.groups={finance}")
    with installed(cluster, *ON, *flags, "--set-file", f"policy={tmp_path / 'policy.yaml'}") as release:
        release.wait_asked(team)
        create_pod(cluster, team, pod("train", gpus=4, cpu="1", memory="1Gi"))
        wait_bound(cluster, team, "train")
        reader = cluster.user_kubeconfig("ann", groups=["finance"])
        wait_for(cluster, lambda: shown(reader, team).get("guaranteed"), what="usage of the team")
        page = cluster.service_account_kubeconfig(NAMESPACE, "fairgate-page")
        assert shown(page, team)["guaranteed"] > 0
        for number in range(REFUSED):
            with pytest.raises(ApiError, match="exceeded quota"):
                create_pod(cluster, team, pod(f"large-{number}", gpus=9, cpu="1", memory="1Gi"))
        assert release.metric("fairgate_decisions_total", outcome="deny") == REFUSED
        assert shown(reader, team)["refused"] == REFUSED, "those of both servers"

        stranger = usage(cluster.user_kubeconfig("eve", groups=["marketing"]))
        assert stranger.returncode == 2
        assert "RBAC must grant this user" in stranger.stderr
        for path, verb, want in (
            (f"serviceaccounts/{READER}", "create --subresource=token", "yes"),
            ("serviceaccounts/fairgate", "create --subresource=token", "no"),
            ("pods", "get --subresource=proxy", "yes"),
            ("secrets", "get", "no"),
            ("pods", "create", "no"),
        ):
            account = f"--as=system:serviceaccount:{NAMESPACE}:fairgate-page"
            said = cluster.kubectl("auth", "can-i", *verb.split(), path, account, "-n", NAMESPACE, check=False)
            assert said == f"{want}\n", (path, verb)
        elsewhere = ("auth", "can-i", "get", "pods", "--subresource=proxy", "-n", team)
        assert cluster.kubectl(*elsewhere, account, check=False) == "no\n"

        release.kubelet.stop(release.pods[1][SERVER])
        wait_for(cluster, lambda: usage(reader).returncode == 2, what="a server that cannot be read is an error")
        assert "server fairgate-1 cannot be read" in usage(reader).stderr
