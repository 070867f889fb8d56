"""Puts Fairgate before the demo's cluster, and takes it away again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.processes import free_ports
from tests.control_plane.workbench import wait_for
from tests.demo.stage import TEAM_A, Stage
from tests.scenarios import serving

POLICIES = Path("tests/demo/policies")
SERVE, EVICT = "fairgate-serve", "fairgate-evict"
WEBHOOKS = "mutatingwebhookconfiguration/zz-fairgate validatingwebhookconfiguration/fairgate"


@dataclass(frozen=True, slots=True)
class Fairgate:
    """The gate and the evictor as two processes, with the webhooks that lead to them."""

    stage: Stage
    port: int

    @classmethod
    def beside(cls, stage: Stage) -> Fairgate:
        """Prepare one for this cluster; nothing runs yet."""
        return cls(stage, *free_ports(1))

    def install(self, policy: str) -> None:
        """Start it by one of the demo's policies and wait until the API server asks it."""
        folder = POLICIES / policy
        cluster, teller = self.stage.cluster, self.stage.teller
        certs, url = cluster.folder / "certs", f"https://127.0.0.1:{self.port}"
        options = ("--policy", folder, "--kubeconfig", cluster.kubeconfig)
        listen = ("--listen", f"127.0.0.1:{self.port}", "--certs", certs, "--drain-seconds", "0")
        teller.ran(f"cat {folder}/teams.yaml", (folder / "teams.yaml").read_text())
        for name, words in ((SERVE, ("serve", *options, *listen)), (EVICT, ("evict", *options))):
            cluster.processes.start(name, (*serving.FAIRGATE, *words), cwd=serving.ROOT)
            teller.ran(f"fairgate {words[0]} --policy {folder} … &", "")
        wait_for(
            cluster,
            lambda: '"ready":true' in serving.get(f"{url}/readyz", ca=certs / "ca.crt"),
            what="Fairgate is ready",
        )
        wait_for(cluster, lambda: '"leading"' in cluster.processes.log(EVICT), what="the evictor leads")
        printed = serving.manifests(policy=folder, url=url, ca=certs / "ca.crt")
        applied = cluster.kubectl("apply", "-f", "-", stdin=printed)
        teller.ran(f"fairgate manifests --policy {folder} … | kubectl apply -f -", applied)
        wait_for(cluster, lambda: serving.is_asked(cluster, TEAM_A), what="the API server asks Fairgate")

    def remove(self) -> None:
        """Take the webhooks away and end the processes."""
        self.stage.kubectl(f"delete {WEBHOOKS}")
        for name in (EVICT, SERVE):
            self.stage.cluster.processes.stop(name, timeout=10)
