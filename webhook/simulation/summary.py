"""What a simulation says in numbers: waiting times by team and by size, GPUs in use, evictions and what they lost."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Annotated, Final, NamedTuple

import msgspec

from webhook.core.explain.job_waits import SIZES, percentiles, size_of
from webhook.core.model.amount import gpu_number
from webhook.core.model.names import GangId, TeamName
from webhook.core.model.reason import Reason, refusal_text
from webhook.simulation.engine import Simulation
from webhook.simulation.series import Recorder, Sample
from webhook.simulation.task import TaskRecord, TaskState

_HOUR: Final = 3600
_DIGITS: Final = 4


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
