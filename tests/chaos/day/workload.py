"""What users run meanwhile: an owner inside its share, a borrower on the rest, and pods without GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.chaos.day.installation import BORROWER, OWNER, PLAIN
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU, pod_spec
from tests.control_plane.workbench import list_pods, wait_for

OWNERS, BORROWERS, WEB = (OWNER, "train"), (BORROWER, "sweep"), (PLAIN, "web")
SIZES = {OWNERS: (6, 1), BORROWERS: (16, 1), WEB: (4, 0)}
"""Replicas, and GPUs of each."""

Deployment = tuple[str, str]
"""The namespace and the name of a Deployment."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The running Deployments."""

    cluster: ControlPlane

    def start(self) -> None:
        """Create them, and wait until their pods run."""
        for (namespace, name), (replicas, gpus) in SIZES.items():
            labels = {"app": name}
            spec = pod_spec(gpus=gpus, cpu="100m", memory="64Mi", terminationGracePeriodSeconds=1)
            body = {
                "metadata": {"name": name},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            }
            self.cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
        self.wait_running()

    def scale(self, which: Deployment, replicas: int) -> None:
        """Change the number of replicas."""
        namespace, name = which
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        self.cluster.api.patch(path, {"spec": {"replicas": replicas}})

    def wait_running(self, *which: Deployment, timeout: float = 120) -> None:
        """Wait until all replicas run, by default of each."""
        wait_for(
            self.cluster,
            lambda: all(self._counts(*each, running=True) for each in which or SIZES),
            what="all replicas run",
            timeout=timeout,
        )

    def wait_created(self) -> None:
        """Wait until all replicas are created, whether they run or not."""
        wait_for(
            self.cluster, lambda: all(self._counts(*each, running=False) for each in SIZES), what="replicas created"
        )

    def gpu_pods(self) -> list[dict[str, Any]]:
        """The pods with GPUs of the Deployments."""
        found = [each for namespace, _ in (OWNERS, BORROWERS) for each in list_pods(self.cluster, namespace)]
        return [each for each in found if GPU in each["spec"]["containers"][0]["resources"].get("limits", {})]

    def _counts(self, namespace: str, name: str, *, running: bool) -> bool:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        want = self.cluster.api.get(path)["spec"]["replicas"]
        phases = ("Running",) if running else ("Running", "Pending")
        found = list_pods(self.cluster, namespace, labelSelector=f"app={name}")
        there = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return sum(each["status"].get("phase") in phases for each in there) == want
