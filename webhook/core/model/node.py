"""A node, its kept places, autoscalers.

Autoscalers of nodes: what marks the nodes that they add and remove.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.core.model.amounts import HOST_PORT, GpuModel, NodeName, ResourceName, TeamName, Uid, Units, exact_units
from webhook.core.model.constraints import HELD, Taint
from webhook.core.model.demand import Demand, Weights
from webhook.core.model.gpu_shares import DEVICE, replica_slice, replicas_by, slice_of, weight_at


class Autoscaler(StrEnum):
    """An autoscaler that a cluster can run."""

    KARPENTER = "Karpenter"
    CLUSTER_AUTOSCALER = "Cluster Autoscaler"


NODE_LABELS: Final[Mapping[Autoscaler, tuple[str, ...]]] = {
    Autoscaler.KARPENTER: ("karpenter.sh/nodepool",),
    Autoscaler.CLUSTER_AUTOSCALER: (
        "alpha.eksctl.io/nodegroup-name",
        "cloud.google.com/gke-nodepool",
        "doks.digitalocean.com/node-pool",
        "eks.amazonaws.com/nodegroup",
        "k8s.scaleway.com/pool-name",
        "kops.k8s.io/instancegroup",
        "kubernetes.azure.com/agentpool",
        "lke.linode.com/pool-id",
        "oci.oraclecloud.com/node-pool",
        "hcloud/node-group",
    ),
}
"""The labels of the nodes of each. Karpenter writes its own; Cluster Autoscaler writes none, so these are the labels by
which clouds and installers name node groups."""


# Room that a node keeps for one pod to come: the replacement of a moved pod, or a pod that still waits in the queue.


NO_POD: Final = Uid("")


class KeptPlace(NamedTuple):
    """The room of one pod.

    `key` is the UID of a queued pod, or names the controller of the pod that is to come (`controller_key`); it is ""
    for room that is only to become free. `name` is the pod that the room was planned for, with its namespace, `team`
    that pod's. `requests` are what it may take. `replaces` is the UID of the pod that moves there, NO_POD for others.
    """

    key: str
    name: str
    team: TeamName
    requests: tuple[tuple[ResourceName, int], ...]
    replaces: Uid = NO_POD

    def has_room_for(self, demand: Demand) -> bool:
        """Whether a pod takes no more than this room."""
        kept = dict(self.requests)
        return all(amount <= kept.get(name, 0) for name, amount in demand.requests)


def controller_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of the next pod that a controller creates."""
    return f"{kind} {namespace}/{name}"


# A node, as far as placing GPU pods depends on it.


NO_MODEL = GpuModel("")
HOSTNAME: Final = "kubernetes.io/hostname"
"""The label by which pods are kept off single nodes: unlike a node's name, several fit into one expression."""


class Maintenance(StrEnum):
    """What an operator changes on a node at present, after "its". Until that is over, what it offers means nothing."""

    PARTITIONING = "GPUs are being repartitioned"
    DRIVER_UPGRADE = "driver is being upgraded"


class Devices(NamedTuple):
    """A node's GPUs where they are shared in parts: the resource, and the capacity of each, by index."""

    resource: ResourceName
    capacities: tuple[int, ...]


class Offer(NamedTuple):
    """Pieces of a GPU resource on a node, and the GPU units of each piece there."""

    resource: ResourceName
    pieces: int
    weight: Units


_NO_ALIASES: Final[Mapping[ResourceName, ResourceName]] = MappingProxyType({})
NO_AMOUNTS: Final[Mapping[ResourceName, int]] = MappingProxyType({})
NO_DEVICES: Final = Devices(ResourceName(""), ())


@dataclass(frozen=True, slots=True)
class Node:
    """The resources of a node. Amounts are integers: cpu in milli-cores, memory in bytes, everything else in pieces.

    `model` is the GPU model by the node's labels, "" where no label names it; `model_label` is the label that does.
    `devices` are its GPUs where they are shared in parts. `alias_of`: a resource in it is a second name for devices
    that the node has under the mapped name, and only says that the node has them.

    `at_best` are the resources of which it offers fewer devices now than it has, with the number that it has: a device
    is unhealthy, or their plugin restarts. `devices_at_best` are its GPUs that are shared in parts, where the node
    offers less of them now. While an operator changes its GPUs (`maintenance`), it may offer none of what it had, and
    then others. `replicas` is the number of pieces of `nvidia.com/gpu` that make one GPU, where policy
    counts by that. `created` is when the object was created, in Unix seconds, 0 where unknown: a node that is replaced
    may have the name of the one before. `kept` are the places of pods to come, while the node is held.
    """

    name: NodeName
    allocatable: Mapping[ResourceName, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    model: GpuModel = NO_MODEL
    model_label: str = ""
    is_ready: bool = True
    is_cordoned: bool = False
    maintenance: Maintenance | None = None
    devices: Devices = NO_DEVICES
    alias_of: Mapping[ResourceName, ResourceName] = field(default_factory=lambda: _NO_ALIASES)
    at_best: Mapping[ResourceName, int] = field(default_factory=lambda: NO_AMOUNTS)
    devices_at_best: Devices = NO_DEVICES
    replicas: int = 1
    created: int = 0
    kept: tuple[KeptPlace, ...] = ()

    @property
    def slice(self) -> ResourceName | None:
        """Return the MIG device or the replica that a piece of `nvidia.com/gpu` is there; None for whole GPUs."""
        return slice_of(self.model) or (replica_slice(self.replicas) if self.replicas > 1 else None)

    def by_replicas(self, *, is_counted: bool) -> "Node":
        """Return the node with the replicas that its label names, or with none if policy does not count by them.

        A node that has fewer pieces than one GPU has replicas offers whole GPUs, whatever its label says.
        """
        replicas = replicas_by(self.labels) if is_counted else 1
        if replicas > 1 and 0 < self.amount_at_best(DEVICE) < replicas:
            replicas = 1
        return self if replicas == self.replicas else replace(self, replicas=replicas)

    def offers(self, weights: Weights) -> Iterator[Offer]:
        """Return its GPU resources, each of its devices under one name only."""
        for name, pieces in self.allocatable.items():
            if pieces > 0 and name in weights and self.alias_of.get(name) not in weights:
                yield Offer(name, pieces, weight_at(name, self.slice, weights))

    def gpus(self, weights: Weights) -> Units:
        """Return the sum of its GPUs, in GPU units."""
        return exact_units(sum(offer.pieces * offer.weight for offer in self.offers(weights)))

    def amount_at_best(self, resource: ResourceName) -> int:
        """Return how much of a resource it has once all of its devices are offered."""
        return self.at_best.get(resource) or self.allocatable.get(resource, int(resource.startswith(HOST_PORT)))

    @property
    def recovered(self) -> "Node":
        """The node as it is once all of its devices are offered."""
        if not self.at_best:
            return self
        devices = self.devices_at_best if self.devices_at_best.capacities else self.devices
        whole = {**self.allocatable, **self.at_best}
        return replace(self, allocatable=whole, devices=devices, at_best=NO_AMOUNTS, devices_at_best=NO_DEVICES)

    @property
    def is_held(self) -> bool:
        """Whether reclaim holds its free room for waiting pods: no other pod gets it."""
        return any(taint.key == HELD for taint in self.taints)

    @property
    def unheld(self) -> "Node":
        """The node as one that keeps no room."""
        if not (self.is_held or self.kept):
            return self
        return replace(self, taints=tuple(taint for taint in self.taints if taint.key != HELD), kept=())

    @property
    def is_open(self) -> bool:
        """Whether new pods may be placed there at all."""
        return self.is_ready and not self.is_cordoned and self.maintenance is None

    @property
    def why_closed(self) -> str:
        """Return why no new pods are placed there, "" if they are."""
        if self.is_open:
            return ""
        return "not ready" if not self.is_ready else self.maintenance or "cordoned"
