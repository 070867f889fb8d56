"""Nodes and pods of a trace in the terms of a policy: how GPUs are asked for, and which nodes have them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.core.model.amount import ONE_GPU
from webhook.core.model.demand import Demand, PerDevice, demand_of
from webhook.core.model.names import CPU, MEMORY, PODS, GpuModel, NodeName, ResourceName
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.model.policy import Policy
from webhook.core.model.selector import NO_CONSTRAINTS, Constraints, NodeTerm, Operator, Requirement
from webhook.core.world.world import World
from webhook.simulation.traces.nodes import NodeRow
from webhook.simulation.traces.row import Row

GPU: Final = ResourceName("nvidia.com/gpu")
SHARE: Final = ResourceName("fairgate.dev/simulated-gpu-milli")
"""Thousandths of a GPU, on nodes of a table where tasks take parts of GPUs."""

MODEL: Final = "nvidia.com/gpu.product"
_PODS: Final = 250
_WHOLE: Final = 1000


def with_shares(policy: Policy) -> Policy:
    """Return a policy that counts thousandths of GPUs."""
    return replace(policy, resources={**policy.resources, SHARE: ONE_GPU // _WHOLE, GPU: ONE_GPU})


def nodes_of(rows: Iterable[NodeRow], *, is_shared: bool) -> list[Node]:
    """Return the nodes of a table; with `is_shared` their GPUs are given out in thousandths."""
    return [_node(row, is_shared=is_shared) for row in rows]


def _node(row: NodeRow, *, is_shared: bool) -> Node:
    gpus = {SHARE: _WHOLE * row.gpus} if is_shared else {GPU: row.gpus}
    labels = {"kubernetes.io/hostname": row.name}
    return Node(
        NodeName(row.name),
        {CPU: row.cpu, MEMORY: row.memory, PODS: _PODS, **gpus} if row.gpus else {CPU: row.cpu, MEMORY: row.memory},
        labels={**labels, MODEL: row.model} if row.model else labels,
        model=GpuModel(row.model),
        model_label=MODEL if row.model else "",
        devices=Devices(SHARE, (_WHOLE,) * row.gpus) if is_shared and row.gpus else NO_DEVICES,
    )


class Site(NamedTuple):
    """How pods ask for GPUs in a world: by which resource, on nodes of how many GPUs at most, with which models."""

    resource: ResourceName
    largest: int
    models: dict[str, str]

    @classmethod
    def of(cls, world: World) -> "Site | None":
        """Return the site of a world; None where no node has GPUs."""
        pieces: dict[ResourceName, int] = {}
        largest: dict[ResourceName, int] = {}
        for node in world.fleet.nodes():
            for offer in node.offers(world.policy.resources):
                pieces[offer.resource] = pieces.get(offer.resource, 0) + offer.pieces
                largest[offer.resource] = max(largest.get(offer.resource, 0), offer.pieces)
        if not pieces:
            return None
        resource = max(pieces, key=lambda each: (pieces[each], each))
        models = {str(model): label for (model, label) in world.fleet.by_model() if model}
        per_gpu = _WHOLE if resource == SHARE else 1
        return cls(resource, largest[resource] // per_gpu, models)

    def demand(self, row: Row, *, gpus: int, pods: int, world: World) -> Demand:
        """Return the demand of one of the pods that a row is split into."""
        requests = {PODS: 1}
        if row.cpu:
            requests[CPU] = -(-row.cpu // pods)
        if row.memory:
            requests[MEMORY] = -(-row.memory // pods)
        ask = None
        if gpus and self.resource == SHARE:
            requests[SHARE] = gpus * row.milli
            ask = PerDevice(SHARE, row.milli, gpus)
        elif gpus:
            requests[self.resource] = gpus
        return demand_of(requests, world.policy.resources, per_device=ask)

    def constraints(self, models: Sequence[str]) -> Constraints:
        """Return the constraints of a pod that may run on these models."""
        if not models:
            return NO_CONSTRAINTS
        labels = sorted({self.models[model] for model in models})
        terms = (
            NodeTerm((Requirement(label, Operator.IN, tuple(m for m in models if self.models[m] == label)),))
            for label in labels
        )
        return Constraints(terms=tuple(terms))
