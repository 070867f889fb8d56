"""What claims and claim templates request, and what PodGroups share. Values only."""

from typing import Final, NamedTuple

from webhook.core.dra.device_parts import DevicePart
from webhook.core.dra.dra_slices import ClassCondition
from webhook.core.model.names import Namespace, NodeName
from webhook.core.model.selector import Toleration

ALL_DEVICES: Final = 32
"""The most devices in one claim (AllocationResultsMaxSize), and what `All` counts until it is allocated."""


class ClaimKey(NamedTuple):
    """The key of a claim, template or group in the cluster."""

    kind: str
    namespace: Namespace
    name: str


class ClassCount(NamedTuple):
    """A number of devices of one DeviceClass. `driver` is "" where the claim does not name one.

    `parts` are those of them of which the claim has a part. `may_be_part`: it asks for some of a device's capacity.
    `conditions` are those of the claim itself on the devices, and `tolerations` of their taints while it has none yet.
    """

    device_class: str
    number: int
    driver: str = ""
    parts: tuple[DevicePart, ...] = ()
    may_be_part: bool = False
    conditions: tuple[ClassCondition, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class DeviceRequest(NamedTuple):
    """One request of a claim: the first alternative that can be satisfied."""

    alternatives: tuple[ClassCount, ...]
    is_admin: bool = False


class GroupEntry(NamedTuple):
    """A claim shared by the pods of a PodGroup whose entry has this name and template."""

    name: str
    template: str


class AllocatedAt(NamedTuple):
    """Where the devices of an allocated claim can be used: on this node only; on several if it is None.

    `devices` are they, each by its pool (`driver/pool`) and name.
    """

    node: NodeName | None = None
    devices: frozenset[tuple[str, str]] = frozenset()


ClaimSpec = tuple[DeviceRequest, ...]
"""The requests of a claim or a claim template; for an allocated claim its devices."""
