"""cert-manager: its definitions, and its real controllers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.control_plane.build import binary_path, module_folder
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.versions import CERT_MANAGER, CERT_MANAGER_MODULE

CONTROLLERS = ("controller", "cainjector")
DEFINITIONS = ("certificates", "certificaterequests", "clusterissuers", "issuers")


@contextmanager
def cert_manager_definitions(cluster: ControlPlane) -> Iterator[None]:
    """The kinds of cert-manager are known until the end of the block."""
    folder = module_folder(CERT_MANAGER_MODULE) / "deploy" / "crds"
    files = [part for kind in DEFINITIONS for part in ("-f", folder / f"cert-manager.io_{kind}.yaml")]
    cluster.kubectl("apply", "--server-side", *files)
    cluster.kubectl("wait", "--for=condition=Established", *files)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", *files)


@contextmanager
def cert_manager(cluster: ControlPlane) -> Iterator[None]:
    """Run its controllers for CA and self-signed Issuers and its CA injector, until the end of the block."""
    with cert_manager_definitions(cluster):
        for name in CONTROLLERS:
            cluster.processes.start(f"cert-manager-{name}", [binary_path(CERT_MANAGER, name), cluster.kubeconfig])
        yield
        for name in CONTROLLERS:
            cluster.processes.check_running(f"cert-manager-{name}")
            cluster.processes.stop(f"cert-manager-{name}", timeout=5)
