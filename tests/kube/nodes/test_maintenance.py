"""Labels and taints of operators that change a node's GPUs or driver."""

import pytest

from webhook.core.model.constraints import Effect, Taint
from webhook.core.model.node import Maintenance
from webhook.kube.nodes.nodes import maintenance_of

MIG, DRIVER = "nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"
PARTITIONING, UPGRADE = Maintenance.PARTITIONING, Maintenance.DRIVER_UPGRADE


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({}, None),
        ({MIG: "pending"}, PARTITIONING),
        ({MIG: "rebooting"}, PARTITIONING),
        ({MIG: "success"}, None),
        ({MIG: "failed"}, None),
        ({DRIVER: "upgrade-required"}, None),
        ({DRIVER: "cordon-required"}, UPGRADE),
        ({DRIVER: "pod-restart-required"}, UPGRADE),
        ({DRIVER: "uncordon-required"}, UPGRADE),
        ({DRIVER: "upgrade-done"}, None),
        ({DRIVER: "upgrade-failed"}, None),
        ({MIG: "pending", DRIVER: "upgrade-done"}, PARTITIONING),
    ],
)
def test_the_states_of_nvidias_operators(labels, want):
    assert maintenance_of(labels, ()) is want


def test_the_taint_of_amds_device_config_manager():
    assert maintenance_of({}, (Taint("amd-dcm", Effect.NO_EXECUTE, "up"),)) is PARTITIONING
    assert maintenance_of({}, (Taint("amd.com/gpu", Effect.NO_EXECUTE),)) is None
