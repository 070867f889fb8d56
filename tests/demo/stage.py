"""The cluster that the demo plays on: four nodes of ten GPUs, two teams, and kubectl as a person would use it."""

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
from tests.demo.narration import Teller
from tests.demo.picture import GpuPod, draw, gpu_pods

TEAMS = TEAM_A, TEAM_B = "team-a", "team-b"
DEMO = "tests/demo"  # from the root of the repository, where the demo runs
SETTLE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Stage:
    """A running control plane and who tells what happens on it."""

    cluster: ControlPlane
    teller: Teller

    def furnish(self) -> None:
        """Make the nodes and the namespaces of the teams."""
        make_nodes(self.cluster, 4)
        for team in TEAMS:
            make_namespace(self.cluster, team)

    def kubectl(self, line: str) -> CompletedProcess[str]:
        """Run `kubectl <line>` before the eyes of the user; it may be refused."""
        done = self.cluster.kubectl.run(*shlex.split(line))
        self.teller.ran(f"kubectl {line}", done.stderr + done.stdout)
        return done

    def create(self, team: str, name: str) -> CompletedProcess[str]:
        """Create one of the demo's workloads for a team."""
        return self.kubectl(f"create -n {team} -f {DEMO}/pods/{name}.yaml")

    def cat(self, path: str) -> None:
        """Show a file."""
        self.teller.ran(f"cat {path}", Path(path).read_text())

    def pods(self) -> list[GpuPod]:
        """The GPU pods that have not ended."""
        return gpu_pods(self.cluster.api.list("/api/v1/pods"))

    def show(self) -> None:
        """Draw the cluster as it is."""
        found = self.cluster.api.list("/api/v1/nodes")
        sizes = {node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0)) for node in found}
        self.teller.picture(draw(sizes, self.pods(), is_plain=self.teller.is_plain))

    def settle(self, running: Mapping[str, int], *, waiting: Mapping[str, int] | None = None) -> list[GpuPod]:
        """Wait until the teams run this many GPUs and wait for so many, draw that, and give the pods."""

        def settled() -> list[GpuPod]:
            pods = self.pods()
            found = {team: sum(p.gpus for p in pods if p.namespace == team and p.is_running) for team in TEAMS}
            stuck = {team: sum(p.gpus for p in pods if p.namespace == team and p.why) for team in TEAMS}
            assert not any(pod.is_leaving for pod in pods), "pods are leaving"
            assert found == dict.fromkeys(TEAMS, 0) | dict(running), f"running: {found}"
            assert stuck == dict.fromkeys(TEAMS, 0) | dict(waiting or {}), f"waiting: {stuck}"
            return pods

        pods = wait_for(
            self.cluster, settled, what=f"{running} run, {waiting or 'nobody'} waits", timeout=SETTLE_SECONDS
        )
        self.show()
        return pods

    def clear(self) -> None:
        """Delete what the teams have."""
        for team in TEAMS:
            self.cluster.kubectl("delete", "deployments,jobs,pods,resourcequotas", "--all", "-n", team, "--wait=false")
        wait_for(self.cluster, lambda: not self.pods(), what="no GPU is in use")
        self.teller.say(Text("\n(What both teams had is deleted.)", style="dim"))
