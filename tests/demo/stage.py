"""The cluster of the demo: four nodes of ten GPUs, two teams, and kubectl commands as a user would run them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from rich.text import Text

from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU
from tests.control_plane.workbench import make_namespace, make_nodes, wait_for
from tests.demo.narration import DemoOutput
from tests.demo.picture import GpuPod, draw, gpu_pods

TEAMS = TEAM_A, TEAM_B = "team-a", "team-b"
DEMO = "tests/demo"  # from the root of the repository, where the demo runs
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A running control plane, and the output that shows what happens."""

    cluster: ControlPlane
    output: DemoOutput

    def create_nodes(self) -> None:
        """Create the nodes and the namespaces of the teams."""
        make_nodes(self.cluster, 4)
        for team in TEAMS:
            make_namespace(self.cluster, team)

    def kubectl(self, line: str) -> CompletedProcess[str]:
        """Run `kubectl <line>` and print it; it may fail."""
        done = self.cluster.kubectl.run(*shlex.split(line))
        self.output.ran(f"kubectl {line}", done.stderr + done.stdout)
        return done

    def create(self, team: str, name: str) -> CompletedProcess[str]:
        """Create one of the demo's workloads for a team."""
        return self.kubectl(f"create -n {team} -f {DEMO}/pods/{name}.yaml")

    def cat(self, path: str) -> None:
        """Show a file."""
        self.output.ran(f"cat {path}", Path(path).read_text())

    def pods(self) -> list[GpuPod]:
        """The GPU pods that have not finished."""
        return gpu_pods(self.cluster.api.list("/api/v1/pods"))

    def show(self) -> None:
        """Draw the current state of the cluster."""
        found = self.cluster.api.list("/api/v1/nodes")
        sizes = {node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0)) for node in found}
        self.output.picture(draw(sizes, self.pods(), is_plain=self.output.is_plain))

    def wait_for_usage(self, running: Mapping[str, int], *, waiting: Mapping[str, int] | None = None) -> list[GpuPod]:
        """Wait until the teams run this many GPUs and wait for so many, draw that, and return the pods."""

        def check() -> list[GpuPod]:
            pods = self.pods()
            found = {team: sum(p.gpus for p in pods if p.namespace == team and p.is_running) for team in TEAMS}
            stuck = {team: sum(p.gpus for p in pods if p.namespace == team and p.why) for team in TEAMS}
            assert not any(pod.is_leaving for pod in pods), "pods are leaving"
            assert found == dict.fromkeys(TEAMS, 0) | dict(running), f"running: {found}"
            assert stuck == dict.fromkeys(TEAMS, 0) | dict(waiting or {}), f"waiting: {stuck}"
            return pods

        pods = wait_for(
            self.cluster, check, what=f"{running} running, {waiting or 'none'} waiting", timeout=TIMEOUT_SECONDS
        )
        self.show()
        return pods

    def clear(self) -> None:
        """Delete the workloads of the teams."""
        for team in TEAMS:
            self.cluster.kubectl("delete", "deployments,jobs,pods,resourcequotas", "--all", "-n", team, "--wait=false")
        wait_for(self.cluster, lambda: not self.pods(), what="no GPU is in use")
        self.output.say(Text("\n(The workloads of both teams are deleted.)", style="dim"))
