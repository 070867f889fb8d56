"""Installs Fairgate's chart on the demo's cluster, and takes it away again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tests.charts.helm import NAMESPACE, RELEASE
from tests.charts.installed import Installed
from tests.control_plane.workbench import make_namespace, wait_for
from tests.demo.stage import DEMO, TEAM_A, Stage
from tests.scenarios import serving


@dataclass(frozen=True, slots=True)
class Fairgate:
    """The chart's release and the stage that it is installed on."""

    stage: Stage
    release: Installed

    @classmethod
    def beside(cls, stage: Stage) -> Fairgate:
        """Prepare the namespace that it will be in."""
        make_namespace(stage.cluster, NAMESPACE)
        return cls(stage, Installed(stage.cluster))

    def install(self, policy: str) -> None:
        """Install it with one of the demo's policies and wait until it is asked and may evict."""
        path = f"{DEMO}/policies/{policy}.yaml"
        self.stage.cat(path)
        self._helm(
            f"install {RELEASE} charts/fairgate -n {NAMESPACE} -f {DEMO}/values.yaml --set-file policy={path}",
            tell=lambda line: line.startswith(("STATUS", "Fairgate")),
        )
        self.release.roll_out()
        self.release.wait_asked(TEAM_A)
        wait_for(self.stage.cluster, self._is_leading, what="the evictor leads")

    def uninstall(self) -> None:
        """Uninstall it, and forget what its ledgers said."""
        self.release.stop()  # first: without their rights the containers could not give their Leases back
        self._helm(f"uninstall {RELEASE} -n {NAMESPACE}", tell=lambda line: line.startswith("release"))
        self.stage.kubectl("delete customresourcedefinition teamledgers.fairgate.dev heldnodes.fairgate.dev")

    def _helm(self, line: str, *, tell: Callable[[str], bool]) -> None:
        said = self.release.helm(*shlex.split(line))
        self.stage.teller.ran(f"helm {line}", "\n".join(filter(tell, said.splitlines())))

    def _is_leading(self) -> bool:
        return serving.total(self.release.get_evictor("/metrics"), "fairgate_leader") == 1
