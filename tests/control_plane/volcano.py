"""Volcano: its scheduler and controllers.

Without its webhooks, which its chart registers for Volcano's own kinds only: no Job or pod passes through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.control_plane.assets import recipe_folder
from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import FAST_CLIENT
from tests.control_plane.versions import VOLCANO
from tests.control_plane.workbench import wait_for

API = "scheduling.volcano.sh/v1beta1"
PARTS = ("controller-manager", "scheduler")
_NAMESPACE = "volcano-system"


@contextmanager
def run_volcano(cluster: ControlPlane, *scheduler_flags: str) -> Iterator[None]:
    """Run it until the end of the block; its definitions stay installed."""
    definitions = recipe_folder(VOLCANO) / "config" / "crd"
    folders = [part for name in ("volcano", "jobflow") for part in ("-f", definitions / name / "bases")]
    cluster.kubectl("apply", "--server-side", *folders)
    cluster.kubectl("wait", "--for=condition=Established", *folders)
    if not cluster.api.exists(f"/api/v1/namespaces/{_NAMESPACE}"):
        cluster.kubectl("create", "namespace", _NAMESPACE)
    own = {"scheduler": ("--cache-dumper=false", *scheduler_flags)}
    for part in PARTS:
        common = (f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", *FAST_CLIENT)
        cluster.processes.start(f"volcano-{part}", [binary_path(VOLCANO, part), *common, *own.get(part, ())])
    wait_for(cluster, lambda: cluster.api.exists(f"/apis/{API}/queues/root"), what="Volcano made its root queue")
    yield
    for part in PARTS:
        cluster.processes.check_running(f"volcano-{part}")
        cluster.processes.end(f"volcano-{part}")
