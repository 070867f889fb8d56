"""The descheduler, which runs one round and ends: so tests count rounds, and wait for none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import DESCHEDULER

ROUND_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Descheduler:
    """Its rounds on a control plane."""

    cluster: ControlPlane

    def round(self, evictor: Mapping[str, Any], *, deschedule: Mapping[str, Any], balance: Mapping[str, Any]) -> str:
        """Run the plugins with these arguments on all nodes; returns what it logged. `evictor`: what it may evict."""
        plugins = {"DefaultEvictor": evictor, **deschedule, **balance}
        profile = {
            "name": "test",
            "pluginConfig": [{"name": name, "args": dict(arguments)} for name, arguments in plugins.items()],
            "plugins": {"deschedule": {"enabled": list(deschedule)}, "balance": {"enabled": list(balance)}},
        }
        policy = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
        file = self.cluster.folder / "descheduler.json"
        file.write_text(json.dumps(policy))
        done = subprocess.run(
            [
                binary_path(DESCHEDULER, "descheduler"),
                f"--kubeconfig={self.cluster.kubeconfig}",
                f"--policy-config-file={file}",
                "--secure-port=0",
                "--v=1",
            ],
            capture_output=True,
            text=True,
            timeout=ROUND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Number of evictions/requests" in done.stderr, done.stderr
        return done.stderr
