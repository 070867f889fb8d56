"""Runs `fairgate evict` beside `fairgate serve`, as an operator would."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.control_plane import workbench
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, wait_for, wait_phase
from tests.scenarios.standing_fairgate import ROOT, FairgateServer

HELD, HOLD = "fairgate.dev/held", "fairgate.dev/hold"


@dataclass(frozen=True, slots=True)
class Evictor:
    """A running evictor."""

    cluster: ControlPlane
    name: str
    command: tuple[object, ...]

    def start(self) -> None:
        """Start it and wait until it leads."""
        terms = len(self.said("leading"))
        self.cluster.processes.start(self.name, self.command, cwd=ROOT)
        wait_for(self.cluster, lambda: len(self.said("leading")) > terms, what="it leads")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, on request with SIGKILL."""
        self.cluster.processes.end(self.name, number)

    def said(self, event: str = "") -> list[dict]:
        """What it logged, in order."""
        return self.cluster.processes.logged(self.name, event)


@contextmanager
def evictor(fairgate: FairgateServer, *options: object, name: str = "") -> Iterator[Evictor]:
    """Evict by the server's policy until the end of the block."""
    name = name or f"evictor-{secrets.token_hex(3)}"
    flags = ("--policy", fairgate.policy, "--kubeconfig", fairgate.cluster.kubeconfig, "--lease-seconds", "3", *options)
    running = Evictor(fairgate.cluster, name, (sys.executable, "-m", "webhook", "evict", *flags))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def node_of(cluster: ControlPlane, namespace: str, name: str) -> str | None:
    """The node that a pod is on."""
    return get_pod(cluster, namespace, name)["spec"].get("nodeName")


def wait_bound(cluster: ControlPlane, namespace: str, *names: str, timeout: float = 120) -> float:
    """Wait until pods are on nodes; returns the seconds until then."""
    began = time.monotonic()
    for name in names:
        workbench.wait_bound(cluster, namespace, name, timeout=timeout)
    return time.monotonic() - began


def alive(cluster: ControlPlane, namespace: str) -> list[str]:
    """The pods that were not deleted."""
    return sorted(
        found["metadata"]["name"]
        for found in list_pods(cluster, namespace)
        if "deletionTimestamp" not in found["metadata"]
    )


def held_nodes(cluster: ControlPlane) -> list[str]:
    """The nodes with a hold."""
    return [
        found["metadata"]["name"]
        for found in cluster.api.list("/api/v1/nodes")
        if any(taint["key"] == HELD for taint in found["spec"].get("taints", ()))
        or HOLD in found["metadata"].get("annotations", {})
    ]


def fill(cluster: ControlPlane, namespace: str, count: int, *, prefix: str = "a", **more: object) -> list[str]:
    """Create pods, of one GPU by default, and wait until all of them run."""
    names = [f"{prefix}{number:02}" for number in range(count)]
    for name in names:
        create_pod(cluster, namespace, pod(name, **{"gpus": 1, "cpu": "1", "memory": "4Gi"} | more))
    for name in names:
        wait_phase(cluster, namespace, name, "Running")
    return names


def ask(cluster: ControlPlane, namespace: str, name: str, *, gpus: int = 1, **more: object) -> None:
    """Create a pod that waits for room."""
    create_pod(cluster, namespace, pod(name, gpus=gpus, cpu="1", memory="4Gi", **more))


def evicted(cluster: ControlPlane, namespace: str, names: list[str]) -> list[str]:
    """Those of these pods that were deleted."""
    left = set(alive(cluster, namespace))
    return [name for name in names if name not in left]
