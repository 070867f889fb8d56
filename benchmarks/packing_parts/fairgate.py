"""Fairgate as one of the placers: its own world, nodes and placement, and a demand mix learned from arrivals."""

import random

from packing_parts.trace import NodeRow, Task
from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    PODS,
    GpuModel,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
)
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, NodeTerm, Operator, Requirement, Tier
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand, PerDevice, demand_of
from webhook.core.model.node import NO_DEVICES, Devices, Node
from webhook.core.model.pod import Resident
from webhook.core.model.policy import Policy
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World

GPU = ResourceName("nvidia.com/gpu")
SHARE = ResourceName("example.com/gpu-milli")
MODEL = "nvidia.com/gpu.product"
MIB = 1 << 20
LISTED_NODES = 8
TEAM = TeamName("team")


class Fairgate:
    """Places a task as the webhook does: lists eight nodes, and takes the room on the first.

    GPUs are assigned in thousandths, or, where no task takes a part of one, as by the plain device plugin.
    """

    def __init__(self, rows: list[NodeRow], tasks: list[Task], rng: random.Random) -> None:
        del rng  # deterministic
        self.is_shared = any(0 < task.share < 1000 for task in tasks)
        self.world = World(Policy(resources={GPU: ONE_GPU, SHARE: ONE_GPU // 1000}))
        for number, row in enumerate(rows):
            self.world.set_node(self._node(number, row))
        self._demands: dict[Task, Demand] = {}
        self._constraints: dict[tuple[str, ...], Constraints] = {(): NO_CONSTRAINTS}
        self._placed = 0

    def place(self, task: Task, *, at_random: random.Random | None = None) -> Uid | None:
        """Place a task; or, as a scheduler that does not pack, on any node with room."""
        demand = self.demand(task)
        constraints = self._constraints.get(task.models)
        if constraints is None:
            term = NodeTerm((Requirement(MODEL, Operator.IN, task.models),))
            constraints = self._constraints[task.models] = Constraints(terms=(term,))
        fleet = self.world.fleet
        among = fleet.matching(constraints)
        nodes = best_nodes(fleet, demand, among, count=LISTED_NODES)
        if not nodes:
            fleet.gpus.demand_mix.note(demand)  # in a cluster it is admitted, and waits
            return None
        if at_random is not None:
            nodes = (at_random.choice(fleet.names_of(fleet.with_room(demand, among))),)
        self._placed += 1
        uid = Uid(f"u{self._placed}")
        pod = Resident(uid, Namespace(TEAM), uid, demand, None, None, TEAM, Tier.GUARANTEED)
        self.world.add_pod(InFlightCharge(pod, Charge(TEAM, Tier.GUARANTEED, demand.gpus), nodes[0]))
        return uid

    def remove(self, held: Uid, task: Task) -> None:
        del task
        self.world.remove_pod(held)

    def _node(self, number: int, row: NodeRow) -> Node:
        return Node(
            NodeName(f"{number:06}-{row.name}"),
            {CPU: row.cpu, MEMORY: row.memory * MIB, PODS: 1000}
            | ({SHARE: 1000 * row.gpus} if self.is_shared else {GPU: row.gpus}),
            labels={MODEL: row.model},
            model=GpuModel(row.model),
            model_label=MODEL,
            devices=Devices(SHARE, (1000,) * row.gpus) if self.is_shared else NO_DEVICES,
        )

    def demand(self, task: Task) -> Demand:
        known = self._demands.get(task)
        if known is None:
            known = self._demands[task] = self._translated(task)
        return known

    def _translated(self, task: Task) -> Demand:
        requests = {CPU: task.cpu, MEMORY: task.memory * MIB, PODS: 1}
        ask = None
        if task.gpus and self.is_shared:
            requests[SHARE] = task.milli
            ask = PerDevice(SHARE, task.share, task.gpus)
        elif task.gpus:
            requests[GPU] = task.gpus
        return demand_of(requests, self.world.policy.resources, per_device=ask)
