"""Volcano: its scheduler and controllers.

Without its webhooks, which its chart registers for Volcano's own kinds only: no Job or pod passes through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.control_plane.assets import recipe_folder
from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import FAST_CLIENT
from tests.control_plane.versions import VOLCANO
from tests.control_plane.workbench import wait_for

API = "scheduling.volcano.sh/v1beta1"
_NAMESPACE = "volcano-system"
GIVES_UP_SOON = ("--max-requeue-num=5",)
"""Its controllers try again what failed at intervals from 5 ms on that double, by default 15 times: three minutes."""


@contextmanager
def run_volcano(
    cluster: ControlPlane, *, scheduler: Sequence[str] = (), controllers: Sequence[str] = ()
) -> Iterator[None]:
    """Run it with these flags until the end of the block; then its definitions are gone, and with them its objects."""
    definitions = recipe_folder(VOLCANO) / "config" / "crd"
    folders = [part for name in ("volcano", "jobflow") for part in ("-f", definitions / name / "bases")]
    own = {"controller-manager": controllers, "scheduler": ("--cache-dumper=false", *scheduler)}
    cluster.kubectl("apply", "--server-side", *folders)
    cluster.kubectl("wait", "--for=condition=Established", *folders)
    if not cluster.api.exists(f"/api/v1/namespaces/{_NAMESPACE}"):
        cluster.kubectl("create", "namespace", _NAMESPACE)
    try:
        for part, flags in own.items():
            common = (f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false", *FAST_CLIENT)
            cluster.processes.start(f"volcano-{part}", [binary_path(VOLCANO, part), *common, *flags])
        wait_for(cluster, lambda: cluster.api.exists(f"/apis/{API}/queues/root"), what="Volcano made its root queue")
        yield
        for part in own:
            cluster.processes.check_running(f"volcano-{part}")
    finally:
        for part in own:
            cluster.processes.end(f"volcano-{part}")
        cluster.kubectl("delete", "--ignore-not-found", *folders)
