"""A node, as far as placing GPU pods depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.core.names import GpuModel, NodeName, ResourceName
from webhook.core.selector import Taint

NO_MODEL = GpuModel("")


class Devices(NamedTuple):
    """A node's GPUs where parts of them are handed out: of which resource, and how much each has, by index."""

    resource: ResourceName
    capacities: tuple[int, ...]


NO_DEVICES: Final = Devices(ResourceName(""), ())


@dataclass(frozen=True, slots=True)
class Node:
    """What a node offers. Amounts are integers: cpu in milli-cores, memory in bytes, all else in pieces.

    `model` is the GPU model by the node's labels, "" where none says; `model_label` is the label that said it;
    `devices` are its GPUs where parts of them are handed out.
    """

    name: NodeName
    allocatable: Mapping[ResourceName, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    model: GpuModel = NO_MODEL
    model_label: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    devices: Devices = NO_DEVICES

    @property
    def is_open(self) -> bool:
        """Tell whether new pods may go there at all."""
        return self.is_ready and not self.is_cordoned
