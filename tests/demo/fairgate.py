"""Installs Fairgate's chart in the demo's cluster, and uninstalls it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tests.charts.helm import NAMESPACE, RELEASE
from tests.charts.installed import Installed
from tests.control_plane.workbench import make_namespace, wait_for
from tests.demo.stage import DEMO, TEAM_A, DemoCluster
from tests.scenarios import serving


@dataclass(frozen=True, slots=True)
class Fairgate:
    """The chart's release and the cluster that it is installed in."""

    demo: DemoCluster
    release: Installed

    @classmethod
    def prepare(cls, demo: DemoCluster) -> Fairgate:
        """Create the namespace of the release."""
        make_namespace(demo.cluster, NAMESPACE)
        return cls(demo, Installed(demo.cluster))

    def install(self, policy: str) -> None:
        """Install it with one of the demo's policies and wait until the webhook is called and the evictor leads."""
        path = f"{DEMO}/policies/{policy}.yaml"
        self.demo.cat(path)
        self._helm(
            f"install {RELEASE} charts/fairgate -n {NAMESPACE} -f {DEMO}/values.yaml --set-file policy={path}",
            show=lambda line: line.startswith(("STATUS", "Fairgate")),
        )
        self.release.roll_out()
        self.release.wait_asked(TEAM_A)
        wait_for(self.demo.cluster, self._is_leading, what="the evictor leads")

    def uninstall(self) -> None:
        """Uninstall it, with its ledgers."""
        self.release.stop()  # first: without their rights the processes could not release their Leases
        self._helm(f"uninstall {RELEASE} -n {NAMESPACE}", show=lambda line: line.startswith("release"))
        self.demo.kubectl("delete customresourcedefinition teamledgers.fairgate.dev heldnodes.fairgate.dev")

    def _helm(self, line: str, *, show: Callable[[str], bool]) -> None:
        printed = self.release.helm(*shlex.split(line))
        self.demo.output.ran(f"helm {line}", "\n".join(filter(show, printed.splitlines())))

    def _is_leading(self) -> bool:
        return serving.total(self.release.get_evictor("/metrics"), "fairgate_leader") == 1
