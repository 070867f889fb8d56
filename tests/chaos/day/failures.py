"""The failures of the day: how each is prepared, and how it begins and ends. When `strike` returns, it is over."""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509

from tests.chaos.day.installation import EVICTORS, SERVERS, SERVICE, WIRE, Installation
from tests.chaos.day.workload import BORROWERS, OWNERS, Workload
from tests.control_plane.commands import COMPONENTS, ETCD, KWOK
from tests.control_plane.objects import GPU
from tests.control_plane.workbench import wait_for

ALL = (*SERVERS, *EVICTORS)
CUT_SECONDS = 20  # longer than a Lease lasts, and than the API server waits for a webhook
FULL_SECONDS = 25  # two batches of the history, and more
WRITES_OF_AN_HOUR = 1000
SHORT_LIVES = ("--cert-lifetime", "10s", "--ca-lifetime", "30s")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a failure strikes."""

    installed: Installation
    workload: Workload


def nothing(_scene: Scene) -> None:
    """Prepare nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure. `restarts` are how often it ends each process; `flags` are added for the servers.

    `check` waits for what holds besides sums, once pods are created again.
    """

    title: str
    strike: Callable[[Scene], None]
    prepare: Callable[[Scene], None] = nothing
    check: Callable[[Scene], None] = nothing
    restarts: dict[str, int] = field(default_factory=dict)
    flags: Sequence[str] = ()


def all_killed(scene: Scene) -> None:
    """Kill all replicas at once; their kubelet starts them again."""
    for name in ALL:
        scene.installed.cluster.processes.send_signal(name, signal.SIGKILL)


def nodes_rebooted(scene: Scene) -> None:
    """Reboot every node: not ready, then ready without GPUs, whose pods kubelets reject, then with GPUs again."""
    cluster = scene.installed.cluster
    nodes = [each["metadata"]["name"] for each in cluster.api.list("/api/v1/nodes")]
    cluster.pause(KWOK)
    for name in nodes:
        down = {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}], **_gpus(0)}
        cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": down})
    wait_for(
        cluster,
        lambda: all(each["spec"].get("taints") for each in cluster.api.list("/api/v1/nodes")),
        what="every node is known to be down",
    )
    lost = [each for each in scene.workload.gpu_pods() if each["spec"].get("nodeName")]
    cluster.resume(KWOK)
    for each in lost:
        rejected = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}
        meta = each["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        if cluster.api.exists(path):
            cluster.api.patch(path, {"status": rejected})
    scene.workload.wait_created()  # their controllers create others, while no node has a GPU
    for name in nodes:
        cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": _gpus(8)})


def an_hour_passes(scene: Scene) -> None:
    """Keep a copy of etcd; then much is written, workloads grow and shrink."""
    cluster = scene.installed.cluster
    cluster.stop(ETCD)
    shutil.copytree(cluster.folder / "etcd", cluster.folder / "etcd-backup")
    cluster.start(ETCD)
    wait_for(cluster, lambda: cluster.api.get("/readyz") == "ok", what="the API server has etcd again")
    scene.workload.scale(OWNERS, 9)
    scene.workload.scale(BORROWERS, 12)
    scene.workload.wait_running()
    notes = "/api/v1/namespaces/default/configmaps"
    cluster.api.create(notes, {"metadata": {"name": "clock"}})
    for number in range(WRITES_OF_AN_HOUR):
        cluster.api.patch(f"{notes}/clock", {"data": {"minute": str(number)}})


def etcd_put_back(scene: Scene) -> None:
    """Put the copy in place of etcd's data, with the control plane down, and start it all again."""
    cluster = scene.installed.cluster
    for name in reversed(COMPONENTS):
        cluster.stop(name, signal.SIGKILL)
    shutil.rmtree(cluster.folder / "etcd")
    shutil.copytree(cluster.folder / "etcd-backup", cluster.folder / "etcd")
    for name in COMPONENTS:
        if name == KWOK:  # another process plays the nodes now: it would wait until the Leases of the former one end
            cluster.api.delete("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        cluster.start(name)


def ca_expired(scene: Scene) -> None:
    """Have the CA expire: one server is frozen meanwhile, the others are down."""
    cluster, (first, *others) = scene.installed.cluster, SERVERS
    with scene.installed.kubelet.down(*others):
        for name in others:
            cluster.processes.stop(name, signal.SIGKILL)
        cluster.processes.send_signal(first, signal.SIGSTOP)
        ends = max(each.not_valid_after_utc for each in _cas(scene))
        time.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds() + 1))
        cluster.processes.send_signal(first, signal.SIGCONT)


def cut_off(scene: Scene) -> None:
    """Cut the network between the API server and Fairgate, both ways: connections stay open, nothing passes."""
    processes = scene.installed.cluster.processes
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for name in (SERVICE, WIRE):
            processes.send_signal(name, number)
        if number == signal.SIGSTOP:
            time.sleep(CUT_SECONDS)


def clocks_moved(number: signal.Signals) -> Callable[[Scene], None]:
    """Move the clocks of all processes but one server, which comes back only then: a moved one leads."""

    def strike(scene: Scene) -> None:
        processes = scene.installed.cluster.processes
        *moved, last = SERVERS
        with scene.installed.kubelet.down(last):
            processes.stop(last)
            for name in (*moved, *EVICTORS):
                processes.send_signal(name, number)

    return strike


def ledgers_deleted(scene: Scene) -> None:
    """Delete every TeamLedger by hand."""
    scene.installed.cluster.kubectl("delete", "teamledgers.fairgate.dev", "--all")


def definitions_deleted(scene: Scene) -> None:
    """Delete the definitions of Fairgate's kinds by hand, and with them all their objects."""
    names = ("teamledgers.fairgate.dev", "reports.fairgate.dev")
    scene.installed.cluster.kubectl("delete", "customresourcedefinitions", *names)


def disk_full(scene: Scene) -> None:
    """Let no server write another byte into a file: neither its history nor its log."""
    pids = scene.installed.cluster.processes.pids()
    for limit in (0, resource.RLIM_INFINITY):
        for name in SERVERS:
            resource.prlimit(pids[name], resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        if not limit:
            time.sleep(FULL_SECONDS)


def history_goes_on(scene: Scene) -> None:
    """Wait until each server has written its history again."""
    cluster = scene.installed.cluster
    for name in SERVERS:
        wait_for(
            cluster,
            lambda name=name: cluster.processes.logged(name, "history written again"),
            what=f"{name} writes its history",
        )


def _cas(scene: Scene) -> list[x509.Certificate]:
    """The CAs that the API server trusts for Fairgate."""
    return x509.load_pem_x509_certificates(scene.installed.trusted())


def _gpus(count: int) -> dict[str, object]:
    return {"allocatable": {GPU: str(count)}, "capacity": {GPU: str(count)}}


_ONCE = dict.fromkeys(ALL, 1)
FAILURES = {
    "killed": Failure("all replicas are killed", all_killed, restarts=_ONCE),
    "reboot": Failure("every node reboots at once", nodes_rebooted),
    "etcd": Failure("etcd is put back an hour", etcd_put_back, an_hour_passes, restarts=_ONCE),
    "ca": Failure("the CA expires", ca_expired, flags=SHORT_LIVES, restarts=dict.fromkeys(SERVERS[1:], 1)),
    "network": Failure("API server and Fairgate are cut off from each other", cut_off),
    "clock-ahead": Failure("clocks are five minutes ahead", clocks_moved(signal.SIGUSR1), restarts={SERVERS[-1]: 1}),
    "clock-behind": Failure("clocks are five minutes behind", clocks_moved(signal.SIGUSR2), restarts={SERVERS[-1]: 1}),
    "ledgers": Failure("all TeamLedgers are deleted by hand", ledgers_deleted),
    "definitions": Failure("the definitions are deleted by hand", definitions_deleted),
    "disk": Failure("the disk is full under history and log", disk_full, check=history_goes_on),
}
