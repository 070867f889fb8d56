"""The chart's pods, while the reader's own helm installs, upgrades and removes them."""

import signal
import time
from pathlib import Path

from tests.charts.helm import NAMESPACE, RELEASE
from tests.charts.installed import EVICTOR, SERVER, Installed
from tests.charts.kubelet import Container, Kubelet
from tests.control_plane import egress
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.workbench import wait_for

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class _Hasty(Kubelet):
    """Ends containers by a second signal: no kube-proxy is here that would go on using an address."""

    def logs(self, container: str) -> str:
        """The files with what all containers of this name wrote, as a pattern for a shell."""
        return str(self._cluster.processes.log_path(f"{container}-{self._folder.name}-*"))

    def stop(self, container: Container) -> None:
        for _ in range(2):
            if self._cluster.processes.is_running(container.process):
                self._cluster.processes.send_signal(container.process, signal.SIGTERM)
            time.sleep(0.2)
        super().stop(container)


class Release(Installed):
    """Runs the containers of what is installed, and leads the API server to them by the Service and the pods."""

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__(cluster)
        self.kubelet = _Hasty(cluster, NAMESPACE)

    def kubectl(self, real: Path) -> str:
        """A script that is kubectl, but for logs: simulated nodes have none, so they are those of the processes."""
        logs = {name: self.kubelet.logs(name) for name in (SERVER, EVICTOR)}
        return (
            "#!/bin/sh\n"
            f'case "$*" in logs*{EVICTOR}*) cat {logs[EVICTOR]}; exit;; logs*) cat {logs[SERVER]}; exit;; esac\n'
            f'exec {real} "$@"\n'
        )

    def settle(self) -> None:
        """Do what the nodes do after the reader's helm: bring containers and mounts in line with the Deployment."""
        if not self.cluster.api.exists(DEPLOYMENT):
            self.stop()
            return
        self.kubelet.sync()
        self.roll_out()
        service = self.cluster.api.get(SERVICE)["spec"]
        ports = [pod[SERVER].port for pod in self.pods]
        addresses = [f"{service['clusterIP']}:{service['ports'][0]['port']}"]
        wait_for(self.cluster, lambda: all(self._addresses()), what="addresses of the pods")
        addresses += [f"{address}:8443" for address in self._addresses()]
        egress.lead(self.cluster.processes, dict.fromkeys(addresses, ports))

    def _addresses(self) -> list[str]:
        return [pod["status"].get("podIP", "") for pod in self.cluster.api.list(PODS)]
