"""Fairgate's traces in a cluster without a Fairgate that runs, and what `fairgate uninstall` leaves of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from click.testing import CliRunner, Result

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, wait_for
from tests.scenarios import serving
from webhook.cli.main import main
from webhook.kube.registration.static_files import (
    DEFINITIONS,
    HELD_ROOM_OBJECT,
    REGISTERED_GUARDS,
    ROLES,
    WEBHOOKS,
    leases,
)

GATE = "fairgate.dev/queue"
GATED = {"schedulingGates": [{"name": GATE}], "gpus": 1, "cpu": "1", "memory": "1Gi"}
HOLD, TAINT = "fairgate.dev/hold", "fairgate.dev/held"
NOTICE = "fairgate.dev/evict-at"
OWNED = (*WEBHOOKS, *REGISTERED_GUARDS, *DEFINITIONS, *ROLES, *leases("default"))
"""What an installation by `fairgate manifests` has."""

POLICY = """\
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: a, namespaces: ["test-*"], gpus: {guaranteed: 20, limit: 20}}
defaults: {onLimit: queue, onNoRoom: queue}
"""


def leave_traces(cluster: ControlPlane, namespace: str, folder: Path, *, node: str, pods: int = 3) -> None:
    """Write what a Fairgate that ended without a word leaves: everything in its place, and no process."""
    cluster.api.patch(
        f"/api/v1/nodes/{node}",
        {
            "metadata": {"annotations": {HOLD: "{}"}},
            "spec": {"taints": [{"key": TAINT, "value": "h", "effect": "NoSchedule"}]},
        },
    )
    labels, notice = {"fairgate.dev/tier": "preemptible"}, {NOTICE: "2026-01-01T00:00:00Z"}
    create_pod(cluster, namespace, pod("noticed", gpus=1, labels=labels, annotations=notice))
    for number in range(pods):
        waiting = {"labels": {"fairgate.dev/team": "a"}, "annotations": {"fairgate.dev/waiting": "for room"}}
        create_pod(cluster, namespace, pod(f"waits-{number}", **GATED, **waiting))
    for name in ("fairgate", "fairgate-evictor"):
        spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15}
        made = {"metadata": {"name": name}, "spec": spec}
        cluster.api.create("/apis/coordination.k8s.io/v1/namespaces/default/leases", made)
    register(cluster, folder)
    held = {"nodes": {node: ["u"]}, "namespaces": [], "namespacePatterns": []}
    spec = {**held, "exemptPatterns": [], "namespaceSelectors": []}
    made = {
        "apiVersion": HELD_ROOM_OBJECT.api_version,
        "kind": HELD_ROOM_OBJECT.kind,
        "metadata": {"name": HELD_ROOM_OBJECT.name},
    }
    cluster.api.create(HELD_ROOM_OBJECT.path.rpartition("/")[0], made | {"spec": spec})


def register(cluster: ControlPlane, folder: Path) -> None:
    """Apply `fairgate manifests` for a server that is down; the guards are in force at the end."""
    serving.write_policy(folder, POLICY)
    cluster.kubectl("apply", "-f", "-", stdin=serving.manifests(policy=folder, url="https://127.0.0.1:1"))
    wait_for(
        cluster, lambda: cluster.api.exists(HELD_ROOM_OBJECT.path.rpartition("/")[0]), what="HeldNodes are defined"
    )
    serving.wait_guarded(cluster)


def uninstall(cluster: ControlPlane, *options: str, kubeconfig: Path | None = None) -> Result:
    """Run `fairgate uninstall` in this process."""
    command = ["uninstall", "--kubeconfig", str(kubeconfig or cluster.kubeconfig), *options]
    return CliRunner().invoke(main, command, catch_exceptions=False)


def report_of(result: Result) -> dict:
    """The report that `-o json` printed."""
    return json.loads(result.stdout)


def gated(cluster: ControlPlane, namespace: str | None = None) -> list[str]:
    """The names of the pods in line."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    found = cluster.api.list(path)
    return [each["metadata"]["name"] for each in found if {"name": GATE} in each["spec"].get("schedulingGates", ())]


def left(cluster: ControlPlane) -> Iterator[str]:
    """Yield whatever of Fairgate is in the cluster, but what is left on purpose."""
    yield from (each.text for each in OWNED if cluster.api.exists(each.path))
    yield from gated(cluster)
    for node in cluster.api.list("/api/v1/nodes"):
        taints = [taint["key"] for taint in node["spec"].get("taints", ())]
        if TAINT in taints or HOLD in node["metadata"].get("annotations", {}):
            yield f"hold of {node['metadata']['name']}"
    for each in cluster.api.list("/api/v1/pods"):
        if NOTICE in each["metadata"].get("annotations", {}):
            yield f"notice of {each['metadata']['name']}"


@contextmanager
def asking(cluster: ControlPlane, namespace: str) -> Iterator[list[str]]:
    """Create GPU pods by dry run, one after the other, until the end of the block; yields the answers ("" is yes)."""
    stop, answers = threading.Event(), []

    def ask() -> None:
        api = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)
        while not stop.is_set():
            answers.append("")
            try:
                api.create(f"/api/v1/namespaces/{namespace}/pods", pod("asks", gpus=1), dryRun="All")
            except ApiError as error:
                if error.status != HTTPStatus.TOO_MANY_REQUESTS:  # which kubectl and the controllers repeat silently
                    answers[-1] = error.message
        api.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join(60)


def patched(cluster: ControlPlane, namespace: str, name: str, *options: str) -> str:
    """Remove a pod's gate with kubectl; returns what kubectl says against it."""
    patch = json.dumps({"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}})
    done = cluster.kubectl.run("patch", "pod", name, "-n", namespace, "--type=strategic", "-p", patch, *options)
    return done.stderr
