"""Resets a control plane to its state before a test, in a second."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.minors import DEVICES, HAS_DEVICES
from tests.control_plane.workbench import wait_for

NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HELD_NODES = "/apis/fairgate.dev/v1alpha1/heldnodes"
TEAM_LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"
REPORTS = "/apis/fairgate.dev/v1alpha1/reports"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
# In this order: a webhook that is gone must not refuse the rest, and a namespace that ends makes no new pods.
COLLECTIONS = (
    f"{ADMISSION}/mutatingwebhookconfigurations",
    f"{ADMISSION}/validatingwebhookconfigurations",
    f"{ADMISSION}/validatingadmissionpolicybindings",
    f"{ADMISSION}/validatingadmissionpolicies",
    NAMESPACES,
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    *((f"{DEVICES}/deviceclasses", f"{DEVICES}/resourceslices") if HAS_DEVICES else ()),
    "/apis/node.k8s.io/v1/runtimeclasses",
    NODES,
)
# The controller-manager recreates these by itself.
KEPT_PREFIXES = ("system:", "kube-")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The names of the cluster-wide objects at one moment; custom resource definitions are left alone."""

    names: dict[str, frozenset[str]]

    @classmethod
    def take(cls, control_plane: ControlPlane) -> Self:
        """Record what exists, except what is kept from test to test: a test may end that and use its names."""
        kept = control_plane.kept
        return cls(
            {
                path: frozenset(name for name in _names(control_plane, path) if f"{path}/{name}" not in kept)
                for path in COLLECTIONS
            }
        )

    def restore(self, control_plane: ControlPlane) -> None:
        """Delete what was created since: webhooks, namespaces with their pods, nodes; wait until pods, nodes are gone.

        What is kept for the next test stays, and so do its ledgers. Namespaces end in the background, so a test names
        its own each time (`make_namespace` does).
        """
        api, kept = control_plane.api, control_plane.kept
        for path in COLLECTIONS:
            for name in sorted(_names(control_plane, path) - self.names[path]):
                if not name.startswith(KEPT_PREFIXES) and f"{path}/{name}" not in kept:
                    delete(control_plane, f"{path}/{name}")
        # Their definition stays, as those of operators do. An API server that just came back still says 429 to them.
        if not kept:
            wait_for(control_plane, lambda: delete_state(control_plane), what="what Fairgate stored is gone")
        wait_for(control_plane, lambda: _delete_all(control_plane, HELD_NODES), what="no node is held")
        # "default" is of the snapshot, so its pods are deleted one by one.
        pods = list(api.list("/api/v1/pods"))
        leaving = {pod["metadata"]["namespace"] for pod in pods} - (self.names[NAMESPACES] - {"default"})
        for pod in pods:
            if pod["metadata"]["namespace"] in leaving:
                _end(control_plane, pod)
        for namespace in sorted(leaving):
            api.delete(f"{NAMESPACES}/{namespace}/pods", {"gracePeriodSeconds": 0}, gracePeriodSeconds="0")

        def is_clean() -> bool:
            left = [pod for pod in api.list("/api/v1/pods") if pod["metadata"]["namespace"] in leaving]
            for pod in left:
                _drop_finalizers(control_plane, pod)
            assert not left, f"{len(left)} pods left"
            nodes = _names(control_plane, NODES) - self.names[NODES]
            assert not nodes, f"{len(nodes)} nodes left"
            return True

        wait_for(control_plane, is_clean, what="the test's pods and nodes gone")


def delete_state(control_plane: ControlPlane) -> bool:
    """Delete every team's ledger, Fairgate's reports, and its Leases; True once that is done.

    A Lease of a process that was killed would keep the next one waiting.
    """
    return all(_delete_all(control_plane, path) for path in (TEAM_LEDGERS, REPORTS, LEASES))


def _delete_all(control_plane: ControlPlane, path: str) -> bool:
    """Delete every object of a kind that may not be defined; True once that is done."""
    if control_plane.api.exists(path):
        for name in _names(control_plane, path):
            delete(control_plane, f"{path}/{name}")
    return True


def _names(control_plane: ControlPlane, path: str) -> frozenset[str]:
    return frozenset(item["metadata"]["name"] for item in control_plane.api.list(path))


def delete(control_plane: ControlPlane, path: str) -> None:
    """Delete an object; a deleted or terminating one is no error."""
    try:
        control_plane.api.delete(path)
    except ApiError as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:  # deleted or terminating
            raise


def _end(control_plane: ControlPlane, pod: dict[str, Any]) -> None:
    """Report the end of a pod, as its kubelet would: a pod that is only deleted may still run there."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return
    path = f"{NAMESPACES}/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
    try:
        control_plane.api.patch(path, {"status": {"phase": "Failed"}})
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _drop_finalizers(control_plane: ControlPlane, pod: dict[str, Any]) -> None:
    """Do not wait for the Job controller to remove its finalizer from a pod whose Job is deleted as well."""
    metadata = pod["metadata"]
    if metadata.get("finalizers") and metadata.get("deletionTimestamp"):
        path = f"{NAMESPACES}/{metadata['namespace']}/pods/{metadata['name']}"
        try:
            control_plane.api.patch(path, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
