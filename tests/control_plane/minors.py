"""What differs between the minors of Kubernetes under test, for the tests themselves: `KUBERNETES=1.30 pytest …`.

docs/reference/versions.md says what differs for users.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane.versions import MINOR, MINORS


def at_least(minor: str, *, than: str = MINOR) -> bool:
    """Whether the control plane is of this minor or a newer one."""
    return _number(than) >= _number(minor)


def needs(minor: str, why: str) -> pytest.MarkDecorator:
    """Skip a test, or a parameter, on older minors: the report of each run names them with this reason."""
    return pytest.mark.skipif(not at_least(minor), reason=f"needs Kubernetes {minor}: {why}")


def _number(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


OLDEST, NEWEST = next(iter(MINORS)), list(MINORS)[-1]

DEVICES_VERSION = "v1" if at_least("1.34") else "v1beta1"
"""The version of resource.k8s.io that the control plane serves; before 1.34 it is a beta, which is off by default."""
DEVICES_API = f"resource.k8s.io/{DEVICES_VERSION}"
DEVICES = f"/apis/{DEVICES_API}"
HAS_DEVICES = at_least("1.32")
needs_devices = needs("1.32", "before, Dynamic Resource Allocation has alpha versions only")
NO_FLAGS: tuple[str, ...] = ()
DEVICE_GATES = ("--feature-gates=DynamicResourceAllocation=true",) if HAS_DEVICES and not at_least("1.34") else NO_FLAGS
"""Flags of API server, controller-manager and scheduler; on the others the gate is on, or unknown."""
DEVICE_VERSIONS = (f"--runtime-config={DEVICES_API}=true",) if DEVICE_GATES else NO_FLAGS
"""Flags of the API server besides."""


def device_request(name: str, **fields: Any) -> dict[str, Any]:
    """One request of a claim for devices of one class, in the served version."""
    return {"name": name, **fields} if DEVICES_VERSION == "v1beta1" else {"name": name, "exactly": fields}


def device(name: str, **fields: Any) -> dict[str, Any]:
    """One device of a ResourceSlice, in the served version."""
    return {"name": name, "basic": fields} if DEVICES_VERSION == "v1beta1" else {"name": name, **fields}
