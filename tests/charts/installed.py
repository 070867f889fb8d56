"""Installs the chart on a test control plane, as a user would, and runs its containers.

    with installed(cluster, "--set-file", f"policy={file}") as fairgate:
        fairgate.wait_asked("vision")
        fairgate.upgrade("--set", "replicaCount=3")
        fairgate.uninstall()

The API server calls the webhooks by their Service: egress.py leads from its address to the processes that kubelet.py
starts. The namespace demands the Pod Security Standard `restricted`.
"""

from __future__ import annotations

import base64
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.charts.helm import CHART, NAMESPACE, RELEASE, helm
from tests.charts.hooks import Hooks
from tests.charts.kubelet import Container, Json, Kubelet
from tests.control_plane import egress
from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.namespaces import end_namespaces
from tests.control_plane.workbench import make_namespace, wait_for
from tests.scenarios import serving

T = TypeVar("T")

SERVER, EVICTOR = "server", "evictor"
DEFINITIONS = tuple(
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.fairgate.dev"
    for plural in ("teamledgers", "reports", "heldnodes")
)
STATEFUL_SET, DEPLOYMENT = WORKLOADS = tuple(
    f"/apis/apps/v1/namespaces/{NAMESPACE}/{plural}/{RELEASE}" for plural in ("statefulsets", "deployments")
)
"""The servers: with a history a StatefulSet, which comes before the Deployment that it replaces."""

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
QUICK = ("--set", "server.drainSeconds=0")  # there is no kube-proxy that would continue to use an address


class Installed:
    """A release on a control plane and its pods: each a mapping of its containers by their names."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.pods: list[dict[str, Container]] = []
        self.kubelet = Kubelet(cluster, NAMESPACE)
        self.hooks = Hooks(cluster, self.kubelet, NAMESPACE)

    def helm(self, *arguments: str | Path) -> str:
        """Run helm as an admin of this cluster, and the pods of its hooks."""
        home, kubeconfig = self.cluster.folder / "helm", self.cluster.kubeconfig
        return self.run_beside(lambda: helm(*arguments, "--namespace", NAMESPACE, kubeconfig=kubeconfig, home=home))

    def run_beside(self, command: Callable[[], T]) -> T:
        """Run a command, the pods of hooks that it waits for, and stop what it scales to zero; returns its result."""
        return self.hooks.run_beside(command, meanwhile=self._follow_scale)

    def install(self, *flags: str | Path) -> str:
        """`helm install`, and run what it deployed; returns helm's output."""
        said = self.deploy(*flags)
        self.roll_out()
        return said

    def deploy(self, *flags: str | Path) -> str:
        """`helm upgrade --install` alone; returns helm's output."""
        how = ("upgrade", "--install", RELEASE, CHART, "--reset-then-reuse-values")
        return self.helm(*how, *QUICK, *flags)

    def upgrade(self, *flags: str | Path) -> str:
        """`helm upgrade` with further values, and replace the pods one by one; returns helm's output."""
        said = self.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values", *flags)
        self.kubelet.sync()
        self.roll_out()
        return said

    def uninstall(self) -> str:
        """`helm uninstall`; the containers end with their workload. Returns helm's output."""
        said = self.helm("uninstall", RELEASE, "--wait")
        self.stop()
        return said

    def roll_out(self) -> None:
        """Run the servers as they are now: a new one starts and gets ready before an old one ends."""
        workload = self.cluster.api.get(next(filter(self.cluster.api.exists, WORKLOADS)))["spec"]
        template = workload["template"]["spec"]
        old, self.pods = self.pods, []
        while len(self.pods) < workload["replicas"] or old:
            missing = workload["replicas"] - len(self.pods)
            fresh = [self._start(template) for _ in range(min(missing, 1) if old else missing)]
            self.pods += fresh
            for pod in fresh:
                self._wait_ready(pod)
            leaving, old = old[:1], old[1:]
            self._lead_to([*old, *self.pods])
            for pod in leaving:
                self._stop(pod)

    def stop(self) -> None:
        """Stop all containers; the release stays."""
        for pod in self.pods:
            self._stop(pod)
        self.pods = []

    def ca(self) -> Path:
        """The file with the CA that clients of the server trust."""
        secret = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-certs")
        path = self.cluster.folder / "fairgate-ca.crt"
        path.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
        return path

    def get(self, path: str, *, pod: int = 0) -> str:
        """GET one of a server's endpoints."""
        return _get(f"https://127.0.0.1:{self.pods[pod][SERVER].port}{path}", ca=self.ca())

    def get_evictor(self, path: str, *, pod: int = 0) -> str:
        """GET one of an evictor's endpoints."""
        return _get(f"http://127.0.0.1:{self.pods[pod][EVICTOR].port}{path}", ca=self.ca())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels over all servers."""
        numbers = range(len(self.pods))
        return sum(serving.total(self.get("/metrics", pod=number), name, **labels) for number in numbers)

    def wait_asked(self, namespace: str) -> None:
        """Wait until the API server calls the webhooks for a namespace, and trusts their certificate."""
        wait_for(self.cluster, lambda: serving.is_asked(self.cluster, namespace), what="the API server calls Fairgate")

    def wait_closed(self) -> None:
        """Wait until the validating webhook fails closed, which it does once a server serves."""
        path = f"{ADMISSION}/validatingwebhookconfigurations/fairgate"

        def is_closed() -> bool:
            [webhook] = [each for each in self.cluster.api.get(path)["webhooks"] if each["name"].startswith("validate")]
            return webhook["failurePolicy"] == "Fail"

        wait_for(self.cluster, is_closed, what="the validating webhook fails closed")

    def _follow_scale(self) -> None:
        """Stop all containers once their workload has no replicas."""
        for path in WORKLOADS if self.pods else ():
            if self.cluster.api.exists(path) and self.cluster.api.get(path)["spec"]["replicas"] == 0:
                self.stop()

    def _start(self, template: Json) -> dict[str, Container]:
        return {made["name"]: self.kubelet.start(template, made) for made in template["containers"]}

    def _wait_ready(self, pod: dict[str, Container]) -> None:
        def is_ready() -> bool:
            self.cluster.processes.check_running(pod[SERVER].process)
            return '"ready":true' in _get(f"https://127.0.0.1:{pod[SERVER].port}/readyz", ca=self.ca())

        wait_for(self.cluster, is_ready, what=f"{pod[SERVER].process} ready", timeout=90)

    def _stop(self, pod: dict[str, Container]) -> None:
        for container in pod.values():
            self.kubelet.stop(container)

    def _lead_to(self, pods: list[dict[str, Container]]) -> None:
        """Have the Service lead to these pods."""
        service = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}")["spec"]
        ports = [pod[SERVER].port for pod in pods]
        addresses = (f"{service['clusterIP']}:{service['ports'][0]['port']}", *self._pod_addresses())
        routes = dict.fromkeys(addresses, ports)
        servers = self._pod_addresses(labelSelector=f"app.kubernetes.io/name={RELEASE}")
        if len(servers) == len(ports):  # each pod is one server, except while they are replaced
            routes |= {address: [port] for address, port in zip(servers, ports, strict=True)}
        egress.lead(self.cluster.processes, routes)

    def _pod_addresses(self, **query: str) -> list[str]:
        """Where the API server finds the simulated pods when it is asked to reach the Service."""
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"

        def addresses() -> list[str]:
            found = [pod["status"].get("podIP") for pod in self.cluster.api.list(pods, **query)]
            return [f"{address}:8443" for address in found] if found and all(found) else []

        return wait_for(self.cluster, addresses, what="addresses of the pods")


@contextmanager
def prepared(cluster: ControlPlane) -> Iterator[Installed]:
    """An empty namespace to install into, without any object of Fairgate; everything is deleted at the end."""
    forget(cluster)
    make_namespace(cluster, NAMESPACE, labels=RESTRICTED)
    release = Installed(cluster)
    try:
        yield release
    finally:
        if RELEASE in release.helm("list", "--short"):
            release.uninstall()
        forget(cluster)


@contextmanager
def installed(cluster: ControlPlane, *flags: str | Path) -> Iterator[Installed]:
    """The chart installed with these flags of helm, and its containers running, until the end of the block."""
    with prepared(cluster) as release:
        release.install(*flags)
        yield release


def _get(url: str, *, ca: Path) -> str:
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False  # a probe uses the address, and the certificate names the Service
    with urllib.request.urlopen(url, context=context, timeout=60) as answer:
        return answer.read().decode()


def forget(cluster: ControlPlane) -> None:
    """Delete what an uninstalled release leaves, and wait until that and every terminating namespace is gone."""
    for path in filter(cluster.api.exists, DEFINITIONS):
        cluster.api.delete(path)
    end_namespaces(cluster, NAMESPACE)
    wait_for(cluster, lambda: not any(map(cluster.api.exists, DEFINITIONS)), what="the definitions gone")
