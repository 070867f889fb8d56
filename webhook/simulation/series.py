"""What is measured while a simulation runs: GPUs and nodes in use, who waits, how fragmented the free GPUs are."""

from operator import add
from typing import Annotated, Final

import msgspec

from webhook.core.explain.cluster_use import ClusterUse, PodsOnNodes, PodUse, capacities
from webhook.core.model.amount import gpu_number
from webhook.core.model.tier import Tier
from webhook.core.placement.gpu_inventory import gpu_inventory
from webhook.simulation.engine import Simulation

POINTS: Final = 200
"""Samples of a run; sums over time are exact nevertheless."""

_DIGITS: Final = 4


class Sample(msgspec.Struct, rename="camel"):
    """The state at one moment."""

    at_seconds: int
    guaranteed_gpus: float
    preemptible_gpus: float
    waiting_pods: int
    waiting_gpus: float
    fragmented: Annotated[float, msgspec.Meta(description="part of the free GPUs that is useless to future pods")]
    partly_held: Annotated[float, msgspec.Meta(description="part of the nodes of which pods hold some GPUs, not all")]
    beyond_fewest: Annotated[
        float, msgspec.Meta(description="part of gangs' nodes beyond the fewest that could hold them")
    ]
    largest_pod: Annotated[float, msgspec.Meta(description="GPUs of the largest pod that fits on a node")]

    @property
    def allocated(self) -> float:
        """GPUs on which pods run."""
        return self.guaranteed_gpus + self.preemptible_gpus


class Recorder:
    """Measures one simulation between its first and its last arrival; pass `note` as its `on_time`."""

    def __init__(self, simulation: Simulation, *, points: int = POINTS) -> None:
        created = [record.task.created for record in simulation.records]
        self.begin, self.end = min(created, default=0), max(created, default=0)
        self.samples: list[Sample] = []
        self.gpu_seconds = 0.0
        self._times = sorted({self.begin + (self.end - self.begin) * n // max(1, points) for n in range(points + 1)})
        self._next = 0
        self._last = self.begin
        self._allocated = 0.0
        self.use = ClusterUse()
        for at in self._times:
            simulation.look_at(at)

    def note(self, simulation: Simulation) -> None:
        """Measure the present moment."""
        now = min(max(simulation.now, self.begin), self.end)
        self.gpu_seconds += self._allocated * (now - self._last)
        self._last = now
        self._allocated = _in_use(simulation)
        if self._next < len(self._times) and self._times[self._next] <= simulation.now:
            self._next += 1
            use = _use(simulation)
            self.use = ClusterUse._make(map(add, self.use, use))
            self.samples.append(_sample(simulation, simulation.now - self.begin, self._allocated, use))


def _in_use(simulation: Simulation) -> float:
    """Return the GPUs of pods on nodes."""
    usages = simulation.world.usage_by_team().values()
    return float(gpu_number(sum(usage.total - usage.waiting for usage in usages)))


def _preemptible(simulation: Simulation) -> float:
    """Return the GPUs that pods on nodes borrow."""
    units = sum(usage.preemptible for usage in simulation.world.usage_by_team().values())
    for pod_of in simulation.cluster.unbound.values():
        charge = simulation.world.charge_of(pod_of.uid)
        if charge is not None and charge.tier is Tier.PREEMPTIBLE:
            units -= charge.gpus
    return float(gpu_number(units))


def _use(simulation: Simulation) -> ClusterUse:
    world, there = simulation.world, PodsOnNodes()
    for pod in world.pods():
        if pod.node is not None:
            there.set(pod.uid, PodUse(pod.node, pod.demand.gpus, pod.gang))
    return there.use(capacities(world.fleet.nodes(), world.policy))


def _sample(simulation: Simulation, at: int, allocated: float, use: ClusterUse) -> Sample:
    world = simulation.world
    found = list(gpu_inventory(world.fleet, world.policy))
    free = sum(each.free for each in found)
    preemptible = _preemptible(simulation)
    waits = list(simulation.waiting_pods())
    return Sample(
        at_seconds=at,
        guaranteed_gpus=round(allocated - preemptible, _DIGITS),
        preemptible_gpus=round(preemptible, _DIGITS),
        waiting_pods=len(waits),
        waiting_gpus=round(float(gpu_number(sum(pod.demand.gpus for pod in waits))), _DIGITS),
        fragmented=round(sum(each.fragmented for each in found) / free, _DIGITS) if free else 0.0,
        partly_held=round(use.fragmentation, _DIGITS),
        beyond_fewest=round(use.beyond_fewest, _DIGITS),
        largest_pod=float(gpu_number(max((each.largest for each in found), default=0))),
    )
