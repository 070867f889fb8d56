"""Series and sums; runs.

What is measured while a simulation runs: GPUs and nodes in use, who waits, how fragmented the free GPUs are.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from statistics import mean, stdev
from typing import Annotated, Final, NamedTuple

import msgspec

from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import TaskRecord, TaskState
from webhook.core.explain.line_rows import SIZES, percentiles, size_of
from webhook.core.explain.node_rows import ClusterUse, PodsOnNodes, PodUse, capacities
from webhook.core.model.amounts import GangId, TeamName, gpu_number
from webhook.core.model.constraints import Tier
from webhook.core.model.reasons import Reason, refusal_text
from webhook.core.placement.best_nodes import gpu_inventory

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


# What a simulation says in numbers: waiting times by team and by size, GPUs in use, evictions and what they lost.


_HOUR: Final = 3600


class Job(NamedTuple):
    """What starts together: a pod, or the members of a gang. `wait` is None while a part of it has not started."""

    team: TeamName
    gpus: float
    wait: int | None
    records: tuple[TaskRecord, ...]

    @property
    def refused(self) -> TaskRecord | None:
        """The first part of it that was refused for good."""
        return next((record for record in self.records if record.state is TaskState.REFUSED), None)


class UnstartedJobs(msgspec.Struct, frozen=True):
    """Jobs that were refused for good, or had not started at the end, for the same reasons by their codes."""

    codes: tuple[str, ...]
    jobs: int
    first: Annotated[str, msgspec.Meta(description="the name of the first of them")]
    why: Annotated[str, msgspec.Meta(description="why the first of them was refused or waits")]


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the jobs of one group waited: percentiles in seconds, None where so many have never started."""

    group: str
    jobs: int
    wait_p50: float | None
    wait_p90: float | None
    wait_p99: float | None
    never_started: int
    refused: int
    evictions: int
    gpu_hours: float
    lost_gpu_hours: float

    def percentile(self, percent: int) -> float | None:
        """Return one of the percentiles."""
        return {50: self.wait_p50, 90: self.wait_p90, 99: self.wait_p99}[percent]


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. `allocated` is the mean part of the GPUs in use between the first and the last arrival.

    `partly_held` and `beyond_fewest` are the means over the samples of ClusterUse's fragmentation, and of what gangs
    hold on more nodes than they need.
    """

    gpus: float
    nodes: int
    seconds: int
    allocated: float
    fragmented: float
    total: Waits
    teams: tuple[Waits, ...]
    sizes: tuple[Waits, ...]
    samples: tuple[Sample, ...]
    partly_held: float = 0.0
    beyond_fewest: float = 0.0
    refused: tuple[UnstartedJobs, ...] = ()
    waiting: tuple[UnstartedJobs, ...] = ()
    moves: int = 0


def summary_of(simulation: Simulation, recorder: Recorder) -> Summary:
    """Return the numbers of a run that is over."""
    world = simulation.world
    found = jobs(simulation.records)
    gpus = float(gpu_number(sum(node.gpus(world.policy.resources) for node in world.fleet.nodes())))
    span = recorder.end - recorder.begin
    teams = sorted({job.team for job in found})
    use = recorder.use
    with_free = [sample.fragmented for sample in recorder.samples if sample.allocated < gpus]
    return Summary(
        gpus=gpus,
        nodes=len(world.fleet),
        seconds=span,
        allocated=recorder.gpu_seconds / (gpus * span) if gpus and span else 0.0,
        fragmented=mean(with_free) if with_free else 0.0,
        total=waits_of("all", found),
        teams=tuple(waits_of(team, [job for job in found if job.team == team]) for team in teams),
        sizes=tuple(_by_size(found)),
        samples=tuple(recorder.samples),
        partly_held=use.fragmentation,
        beyond_fewest=use.beyond_fewest,
        refused=_unstarted(_refused(found)),
        waiting=_unstarted(_waiting(found, simulation)),
        moves=simulation.moves,
    )


def _refused(found: Iterable[Job]) -> Iterator[tuple[TaskRecord, tuple[Reason, ...]]]:
    return ((record, record.refused) for record in filter(None, (job.refused for job in found)))


def _waiting(found: Iterable[Job], simulation: Simulation) -> Iterator[tuple[TaskRecord, tuple[Reason, ...]]]:
    known = {id(record): reasons for record, reasons in simulation.reasons_to_wait()}
    for job in found:
        if job.wait is None and job.refused is None:
            parts = [record for record in job.records if id(record) in known]
            if parts:
                part = min(parts, key=lambda record: not record.refusals)  # the others wait for one that was refused
                yield part, known[id(part)]


def _unstarted(found: Iterable[tuple[TaskRecord, tuple[Reason, ...]]]) -> tuple[UnstartedJobs, ...]:
    groups: dict[tuple[str, ...], list[tuple[TaskRecord, tuple[Reason, ...]]]] = {}
    for record, reasons in found:
        groups.setdefault(tuple(reason.code for reason in reasons), []).append((record, reasons))
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(
        UnstartedJobs(codes, len(group), group[0][0].task.name, refusal_text(group[0][1])) for codes, group in ordered
    )


def jobs(records: Iterable[TaskRecord]) -> list[Job]:
    """Return what starts together, in the order in which it came; pods without GPUs are left out."""
    groups: dict[GangId | int, list[TaskRecord]] = {}
    for number, record in enumerate(records):
        if record.task.pod.demand.gpus:
            gang = record.task.pod.gang
            groups.setdefault(number if gang is None else gang.id, []).append(record)
    return [_job(tuple(group)) for group in groups.values()]


def _job(records: tuple[TaskRecord, ...]) -> Job:
    waits = [record.wait_seconds for record in records]
    known = [wait for wait in waits if wait is not None]
    gpus = float(gpu_number(sum(record.task.pod.demand.gpus for record in records)))
    return Job(records[0].task.team, gpus, max(known) if len(known) == len(waits) else None, records)


def waits_of(group: str, found: Sequence[Job]) -> Waits:
    """Return the numbers of a group of jobs."""
    waits = percentiles(math.inf if job.wait is None else job.wait for job in found)
    held = [(record, float(gpu_number(record.task.pod.demand.gpus))) for job in found for record in job.records]
    return Waits(
        group,
        jobs=waits.jobs,
        wait_p50=waits.p50,
        wait_p90=waits.p90,
        wait_p99=waits.p99,
        never_started=sum(job.wait is None for job in found),
        refused=sum(job.refused is not None for job in found),
        evictions=sum(record.evictions for record, _ in held),
        gpu_hours=sum(gpus * (record.task.seconds or 0) for record, gpus in held if record.ended is not None) / _HOUR,
        lost_gpu_hours=sum(gpus * record.lost_seconds for record, gpus in held) / _HOUR,
    )


def _by_size(found: Sequence[Job]) -> Iterable[Waits]:
    groups: dict[str, list[Job]] = {}
    for job in found:
        groups.setdefault(size_of(job.gpus), []).append(job)
    for name in SIZES:
        if name in groups:
            yield waits_of(name, groups[name])


class Interval(msgspec.Struct, frozen=True):
    """A mean over rounds, how far the true one may be off, and how far apart the rounds were."""

    mean: float
    margin: Annotated[float | None, msgspec.Meta(description="for 95 % confidence; null for a single round")]
    lowest: Annotated[float | None, msgspec.Meta(description="of the rounds; null for a single round")] = None
    highest: Annotated[float | None, msgspec.Meta(description="of the rounds; null for a single round")] = None


_T: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11)
"""Student's t for 95 %, by degrees of freedom from 1."""
_T_OF_MANY: Final = 2.10


def interval(values: Iterable[float | None]) -> Interval | None:
    """Return the mean of a number over rounds; None where it is not known in every round."""
    found = list(values)
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found):
        return None
    if len(known) == 1:
        return Interval(round(known[0], _DIGITS), None)
    freedom = len(known) - 1
    t = _T[freedom - 1] if freedom <= len(_T) else _T_OF_MANY
    margin = t * stdev(known) / math.sqrt(len(known))
    return Interval(*(round(each, _DIGITS) for each in (mean(known), margin, min(known), max(known))))


def over_rounds(rounds: Sequence[Summary], value: Callable[[Summary], float | None]) -> Interval | None:
    """Return one number over the rounds of a policy."""
    return interval(map(value, rounds))
