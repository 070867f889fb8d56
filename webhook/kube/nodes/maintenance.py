"""What an operator changes on a node at present, by the labels and taints that it sets meanwhile.

NVIDIA's MIG manager (https://github.com/NVIDIA/mig-parted, pkg/mig/reconfigure) and driver upgrades
(https://github.com/NVIDIA/k8s-operator-libs, pkg/upgrade), AMD's device config manager
(https://github.com/ROCm/gpu-operator, docs/dcm). A node whose upgrade is only due, or has failed, works as its kubelet
says.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from webhook.core.model.node import Maintenance
from webhook.core.model.selector import AMD_PARTITIONING, Taint

MIG_STATE: Final = "nvidia.com/mig.config.state"
DRIVER_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
_PARTITIONING: Final = frozenset({"pending", "rebooting"})
_UPGRADING: Final = frozenset(
    f"{step}-required"
    for step in (
        *("node-maintenance", "cordon", "wait-for-jobs", "pod-deletion", "drain"),
        *("pod-restart", "validation", "uncordon"),
    )
)


def maintenance_of(labels: Mapping[str, str], taints: Iterable[Taint]) -> Maintenance | None:
    """Return what is changed on a node; None for nothing."""
    if labels.get(MIG_STATE) in _PARTITIONING or any(taint.key == AMD_PARTITIONING for taint in taints):
        return Maintenance.PARTITIONING
    return Maintenance.DRIVER_UPGRADE if labels.get(DRIVER_STATE) in _UPGRADING else None
