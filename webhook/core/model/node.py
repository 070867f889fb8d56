"""A node, as far as placing GPU pods depends on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amount import Units, exact_units
from webhook.core.model.demand import Weights
from webhook.core.model.mig_slices import slice_of, weight_at
from webhook.core.model.names import GpuModel, NodeName, ResourceName
from webhook.core.model.selector import Taint

NO_MODEL = GpuModel("")


class Devices(NamedTuple):
    """A node's GPUs where parts of them are handed out: of which resource, and how much each has, by index."""

    resource: ResourceName
    capacities: tuple[int, ...]


class Offer(NamedTuple):
    """Pieces of a GPU resource on a node, and the GPU units that each of them counts there."""

    resource: ResourceName
    pieces: int
    weight: Units


_NO_ROOMS: Final[Mapping[ResourceName, ResourceName]] = MappingProxyType({})
NO_DEVICES: Final = Devices(ResourceName(""), ())


@dataclass(frozen=True, slots=True)
class Node:
    """What a node offers. Amounts are integers: cpu in milli-cores, memory in bytes, all else in pieces.

    `model` is the GPU model by the node's labels, "" where none says; `model_label` is the label that said it;
    `devices` are its GPUs where parts of them are handed out. `rooms`: a name in it draws on the devices that the node
    offers under another name, too, and is there only to say that the node has them.
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
    rooms: Mapping[ResourceName, ResourceName] = field(default_factory=lambda: _NO_ROOMS)

    @property
    def slice(self) -> ResourceName | None:
        """Name the MIG resource that its `nvidia.com/gpu` are pieces of; None where they are whole GPUs."""
        return slice_of(self.model)

    def offers(self, weights: Weights) -> Iterator[Offer]:
        """List the GPU resources that it has, each of its devices under one name only."""
        for name, pieces in self.allocatable.items():
            if pieces > 0 and name in weights and self.rooms.get(name) not in weights:
                yield Offer(name, pieces, weight_at(name, self.model, weights))

    def gpus(self, weights: Weights) -> Units:
        """Add up what it has, in GPU units."""
        return exact_units(sum(offer.pieces * offer.weight for offer in self.offers(weights)))

    @property
    def is_open(self) -> bool:
        """Tell whether new pods may go there at all."""
        return self.is_ready and not self.is_cordoned
