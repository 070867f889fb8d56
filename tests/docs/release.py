"""The chart's pods, while the reader's own helm installs, upgrades and removes them."""

import re
from pathlib import Path

from tests.charts.helm import NAMESPACE, RELEASE
from tests.charts.hooks import Hooks
from tests.charts.installed import EVICTOR, SERVER, Installed
from tests.charts.kubelet import Container, Json, Kubelet
from tests.control_plane.cluster import ControlPlane

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class _Logged(Kubelet):
    """Says where the logs of its containers are, and has them drain for no time: no kube-proxy uses their addresses."""

    def logs(self, container: str) -> str:
        """The files with what all containers of this name wrote, as a pattern for a shell."""
        return str(self._cluster.processes.log_path(f"{container}-{self._folder.name}-*"))

    def start(self, pod: Json, container: Json) -> Container:
        arguments = [re.sub(r"^(--drain-seconds)=.*", r"\1=0", argument) for argument in container["args"]]
        return super().start(pod, {**container, "args": arguments})


class Release(Installed):
    """Runs the containers of what is installed, and routes the API server to them by the Service and the pods."""

    def __init__(self, cluster: ControlPlane, fairgate: Path) -> None:
        super().__init__(cluster)
        self.kubelet = _Logged(cluster, NAMESPACE, command=[fairgate / "fairgate"])
        self.hooks = Hooks(cluster, self.kubelet, NAMESPACE)

    def kubectl(self, real: Path) -> str:
        """A script that is kubectl, but for logs: simulated nodes have none, so they are those of the processes."""
        logs = {name: self.kubelet.logs(name) for name in (SERVER, EVICTOR)}
        return (
            "#!/bin/sh\n"
            f'case "$*" in logs*{EVICTOR}*) logs="{logs[EVICTOR]}";; logs*) logs="{logs[SERVER]}";; esac\n'
            'if [ "$logs" ]; then cat $logs 2>/dev/null; exit 0; fi\n'
            f'exec {real} "$@"\n'
        )

    def settle(self) -> None:
        """Do what the nodes do after the reader's helm: update containers and mounts to match the Deployment."""
        if not self.cluster.api.exists(DEPLOYMENT):
            self.stop()
            return
        self.kubelet.sync()
        self.roll_out()
        self._lead_to(self.pods)  # again: the pods of the Deployment have changed meanwhile
