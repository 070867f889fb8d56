"""Is a pod idle: windows and clock.

The recent readings of one pod or gang as bits, the latest first: which were seen, below the bound, or excused.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.core.model.amounts import ONE_GPU, GangId, Namespace, ResourceName, TeamName, Uid, Units
from webhook.core.model.gpu_shares import replicas_by, slice_of
from webhook.core.model.node import Node
from webhook.core.model.policy_addons import IdleRules, IdleTerms, SeriesLabels, UtilizationMetric
from webhook.core.reclaim.reclaim_pods import ReclaimPod, Sharing
from webhook.core.world.world import World

GAP_PERCENT: Final = 10
"""Readings that may be missing, in percent: scrapes fail now and then. More is a gap, which is never idleness."""

_LATEST: Final = 0b11
"""The last two readings: a verdict ends where both are missing."""


class Reading(StrEnum):
    """What one reading says. EXCUSED: low for a reason that is not idleness. UNKNOWN: nothing."""

    USED = "used"
    LOW = "low"
    EXCUSED = "excused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Of `readings` that count, `share_percent` must be low; up to `excuses` more may be excused meanwhile."""

    readings: int
    excuses: int
    share_percent: int

    @property
    def length(self) -> int:
        """How many readings are kept."""
        return self.readings + self.excuses


@dataclass(slots=True)
class IdleWindow:
    """The readings until `slot`, the number of the last one since the epoch.

    Excuses are bounded: a pod's owner can restart it, or write that it saved, without end. `first` is the slot before
    the first reading, and `since` is when the verdict began, 0 without one.
    """

    slot: int
    first: int
    seen: int = 0
    low: int = 0
    excused: int = 0
    since: int = 0

    @classmethod
    def full(cls, slot: int, bounds: WindowBounds, *, since: int) -> "IdleWindow":
        """Return the window of a pod whose verdict an earlier leader published."""
        ones = (1 << bounds.readings) - 1
        return cls(slot, slot - bounds.readings, ones, ones, since=since)

    def note(self, slot: int, reading: Reading, bounds: WindowBounds) -> Reading:
        """Note a reading; return what it counts as. One of a slot that has one, or is earlier, is dropped."""
        if slot <= self.slot:
            return Reading.UNKNOWN
        shift, mask = min(slot - self.slot, bounds.length), (1 << bounds.length) - 1
        self.seen, self.low, self.excused = (bits << shift & mask for bits in (self.seen, self.low, self.excused))
        self.slot = slot
        if reading is Reading.EXCUSED and self.excused.bit_count() >= bounds.excuses:
            reading = Reading.LOW
        match reading:
            case Reading.USED:
                self.seen |= 1
            case Reading.LOW:
                self.seen |= 1
                self.low |= 1
            case Reading.EXCUSED:
                self.excused |= 1
            case Reading.UNKNOWN:
                pass
        return reading

    def is_idle(self, bounds: WindowBounds) -> bool:
        """Whether it was low for long enough, and the latest reading that is known was."""
        if self.slot - self.first < bounds.readings + self.excused.bit_count():
            return False
        latest = self.seen & -self.seen
        if not latest & _LATEST or not self.low & latest:
            return False
        seen, low = self.seen.bit_count(), self.low.bit_count()
        return seen * 100 >= bounds.readings * (100 - GAP_PERCENT) and low * 100 >= seen * bounds.share_percent


# The utilization of GPUs by pod, from the series of an exporter; what cannot be attributed is left out.


PodKey = tuple[Namespace, str]
"""Namespace and name of a pod."""


class GpuSeries(NamedTuple):
    """The highest utilization of one GPU in the last reading, in percent, for the pod that the exporter names.

    `gpu` identifies the GPU, or a part of one. `is_of_whole_gpus`: its metric means nothing for parts.
    """

    namespace: Namespace
    pod: str
    gpu: tuple[str, ...]
    percent: float
    is_of_whole_gpus: bool = False


@dataclass(frozen=True, slots=True)
class PodUtilization:
    """What is known of a pod's GPUs: the highest utilization of each in percent, and whether others share one of them.

    `of_parts` are the values of the metrics that mean something for parts of a GPU.
    """

    by_gpu: Mapping[tuple[str, ...], float]
    of_parts: Mapping[tuple[str, ...], float]
    is_shared: bool = False


def utilization_by_pod(found: Iterable[GpuSeries]) -> dict[PodKey, PodUtilization]:
    """Return the utilization by pod; the highest of several metrics of a GPU counts.

    A GPU that several pods have is shared: its value is that of all of them, and exporters show 0 for a pod whose
    processes they cannot find.
    """
    pods: dict[PodKey, tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]] = {}
    for each in found:
        every, of_parts = pods.setdefault((each.namespace, each.pod), ({}, {}))
        for values in (every,) if each.is_of_whole_gpus else (every, of_parts):
            values[each.gpu] = max(each.percent, values.get(each.gpu, 0.0))
    users = Counter(gpu for every, _ in pods.values() for gpu in every)
    return {
        key: PodUtilization(every, of_parts, any(users[gpu] > 1 for gpu in every))
        for key, (every, of_parts) in pods.items()
    }


# The verdicts: which pods do not use their GPUs, by their readings of the last minutes or hours.
#
# The clock is kept by workload: a pod that replaces another one continues with its readings. Pods of a gang are judged
# together, by what most of its GPUs do. Time is an argument, in seconds of Unix time.


WORKLOADS: Final = 4096
PODS_LEFT: Final = 16
"""Workloads whose ended pods' readings are remembered, and how many of each: a tenant may create any number."""

SAVING_SECONDS: Final = 120
"""A pod that saved so recently is not idle: it may still write."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that holds GPUs on a node. Times are seconds of Unix time, 0 where unknown.

    `workload` names what made it, also where that is created again under its name. `devices` is how many series it must
    have: its GPUs, or parts of them (`has_parts`). `cannot_judge` is why utilization says nothing about it, "" for
    nothing. `idle_since` is what its annotation says. `saved_at` is its last checkpoint. `is_starting`: no container of
    it runs yet.
    """

    uid: Uid
    key: PodKey
    team: TeamName
    workload: str
    gpus: Units
    devices: int
    terms: IdleTerms
    gang: GangId | None = None
    has_parts: bool = False
    cannot_judge: str = ""
    started_at: int = 0
    saved_at: int = 0
    idle_since: int = 0
    is_starting: bool = False

    @property
    def subject(self) -> str:
        """What is judged as one: its gang, or itself."""
        return f"gang {self.gang}" if self.gang is not None else self.uid


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The result of one look: the pods that are idle, with the time since when, and what each pod's reading says."""

    idle_since: Mapping[Uid, int] = field(default_factory=dict)
    readings: Mapping[Uid, Reading] = field(default_factory=dict)


class IdleClock:
    """Windows of readings of all pods, bounded by what exists and by WORKLOADS."""

    def __init__(self) -> None:
        self._windows: dict[str, IdleWindow] = {}
        self._workloads: dict[str, str] = {}
        self._left: OrderedDict[str, list[IdleWindow]] = OrderedDict()
        self._is_new = True

    def look(
        self,
        candidates: Iterable[Candidate],
        found: Mapping[PodKey, PodUtilization] | None,
        rules: IdleRules,
        *,
        now: int,
    ) -> Verdicts:
        """Note a reading of all pods, and judge them; `found` is None where there is none.

        Verdicts that an earlier leader published are continued by the first look.
        """
        subjects: dict[str, list[Candidate]] = {}
        for each in candidates:
            if not each.cannot_judge:
                subjects.setdefault(each.subject, []).append(each)
        self._remember(subjects.keys())
        verdicts: dict[Uid, int] = {}
        readings: dict[Uid, Reading] = {}
        slot = now // rules.source.interval_seconds
        for subject, members in subjects.items():
            bounds = bounds_of(members[0].terms, rules)
            window = self._windows.get(subject)
            if window is None:
                window = self._windows[subject] = self._first(members, slot, bounds)
                self._workloads[subject] = members[0].workload
            each_says = [_reading(each, found, rules, now=now) for each in members]
            counted = window.note(slot, _together(members, each_says), bounds)
            readings.update((each.uid, counted) for each in members)
            if not window.is_idle(bounds):
                window.since = 0
                continue
            window.since = window.since or now - members[0].terms.for_seconds
            verdicts.update((each.uid, max(window.since, each.started_at)) for each in members)
        self._is_new = False
        return Verdicts(verdicts, readings)

    def evicted(self, candidate: Candidate) -> None:
        """Forget the readings of a pod that is evicted for them: what replaces it begins again."""
        self._windows.pop(candidate.subject, None)
        self._workloads.pop(candidate.subject, None)

    def _first(self, members: Sequence[Candidate], slot: int, bounds: WindowBounds) -> IdleWindow:
        """Return the window of a new pod: that of an ended pod of its workload, if there is one."""
        since = max(each.idle_since for each in members) if self._is_new else 0
        if since and all(each.idle_since for each in members):
            return IdleWindow.full(slot - 1, bounds, since=since)
        left = self._left.get(members[0].workload)
        if not left:
            return IdleWindow(slot - 1, slot - 1)
        found = left.pop()
        if not left:
            del self._left[members[0].workload]
        return found

    def _remember(self, there: Set[str]) -> None:
        """Keep the readings of pods that ended by their workload, those that were idle most as the last."""
        for subject in self._windows.keys() - there:
            window, workload = self._windows.pop(subject), self._workloads.pop(subject)
            left = self._left.setdefault(workload, [])
            self._left.move_to_end(workload)
            left.append(window)
            left.sort(key=lambda each: each.low.bit_count())
            del left[:-PODS_LEFT]
            if len(self._left) > WORKLOADS:
                self._left.popitem(last=False)


def bounds_of(terms: IdleTerms, rules: IdleRules) -> WindowBounds:
    """Return how many readings count under the terms of a team."""
    interval = rules.source.interval_seconds
    readings, startup = -(-terms.for_seconds // interval), -(-rules.startup_seconds // interval)
    return WindowBounds(readings, readings + startup, rules.share_percent)


def _reading(pod: Candidate, found: Mapping[PodKey, PodUtilization] | None, rules: IdleRules, *, now: int) -> Reading:
    """Return what a reading says of one pod. All of its GPUs must be there: a missing series is no use of 0."""
    utilization = None if found is None else found.get(pod.key)
    if utilization is None or utilization.is_shared:
        return Reading.UNKNOWN
    values = utilization.of_parts if pod.has_parts else utilization.by_gpu
    if len(values) != pod.devices:
        return Reading.UNKNOWN
    if max(values.values(), default=0.0) >= pod.terms.below_percent:
        return Reading.USED
    is_new = pod.is_starting or now < pod.started_at + rules.startup_seconds
    is_saving = 0 <= now - pod.saved_at < SAVING_SECONDS
    return Reading.EXCUSED if is_new or is_saving else Reading.LOW


def _together(members: Sequence[Candidate], readings: Sequence[Reading]) -> Reading:
    """Return the reading of a gang: what is so of most of its GPUs; else nothing is known.

    So its owner has to use as many GPUs as they keep.
    """
    total = sum(each.gpus for each in members)
    for one in (Reading.USED, Reading.LOW, Reading.EXCUSED):
        gpus = sum(each.gpus for each, reading in zip(members, readings, strict=True) if reading is one)
        if 2 * gpus >= total + (one is not Reading.USED):
            return one
    return Reading.UNKNOWN


# Which pods can be judged by the utilization of their GPUs, and by how many series.


SHARES: Final = "it shares a GPU: exporters cannot tell whose use they show"
"""Why some pods are never idle."""

_MIG: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_REPLICA_SET: Final = "ReplicaSet"


def candidates(gpu_pods: Iterable[ReclaimPod], world: World) -> Iterator[Candidate]:
    """Yield the pods on nodes whose teams' idle GPUs have consequences."""
    rules, sharing = world.policy.idle, Sharing(world)
    if rules is None:
        return
    for gpu_pod in gpu_pods:
        pod, team = gpu_pod.pod, world.policy.team(gpu_pod.team)
        if pod.node is None or pod.is_terminating or not pod.demand.gpus or not world.policy.on_idle(gpu_pod.team):
            continue
        yield Candidate(
            uid=pod.uid,
            key=(pod.namespace, pod.name),
            team=gpu_pod.team,
            workload=workload_of(gpu_pod),
            gpus=pod.demand.gpus,
            devices=sum(amount for _, amount in pod.demand.held),
            terms=rules.terms_of(None if team is None else team.idle),
            gang=gpu_pod.goes_with,
            has_parts=_has_parts(gpu_pod, world.fleet.get(pod.node)),
            cannot_judge="policy exempts it"
            if rules.exempts(pod.namespace, gpu_pod.labels)
            else why_shared(gpu_pod, world, sharing),
            started_at=gpu_pod.runs_since,
            saved_at=gpu_pod.saved_at,
            idle_since=pod.idle_since,
            is_starting=gpu_pod.is_starting,
        )


def why_shared(gpu_pod: ReclaimPod, world: World, sharing: Sharing) -> str:
    """Return why the utilization of a pod's GPUs says nothing about the pod; "" where it does."""
    pod = gpu_pod.pod
    node = None if pod.node is None else world.fleet.get(pod.node)
    demand = pod.demand
    is_part_of_device = demand.per_device is not None or demand.counted is not None or bool(pod.devices)
    names = [name for name, _ in demand.held]
    if is_part_of_device or any(_is_shared(name, world) for name in names) or sharing.others(pod.uid):
        return SHARES
    if node is not None and replicas_by(node.labels) > 1:
        return SHARES
    return "" if names else "it has no devices of its own"


def workload_of(gpu_pod: ReclaimPod) -> str:
    """Return a name of what made a pod that stays the same where that is created again, or rolled out."""
    controller = gpu_pod.controller
    kind, name = ("Pod", gpu_pod.name) if controller is None else (controller.kind, controller.name)
    if kind == _REPLICA_SET:  # of a Deployment, with the hash of its template
        name = name.rpartition("-")[0] or name
    return f"{gpu_pod.namespace}/{kind}/{name}"


def _has_parts(gpu_pod: ReclaimPod, node: Node | None) -> bool:
    names = [name for name, _ in gpu_pod.demand.held]
    is_sliced = node is not None and slice_of(node.model) is not None
    return is_sliced or any(name.startswith(_MIG) for name in names)


def _is_shared(name: ResourceName, world: World) -> bool:
    weight = world.policy.resources.get(name, ONE_GPU)
    return name.endswith(_SHARED) or (weight < ONE_GPU and not name.startswith(_MIG))


# What one series of an exporter says of one GPU, by the labels that policy names.


_FULL_PERCENT: Final = 100


def gpu_series(
    labels: Mapping[str, str], value: float, metric: UtilizationMetric, names: SeriesLabels
) -> GpuSeries | None:
    """Return a series as the utilization of a GPU; None where it names no pod, or its value says nothing.

    A series of a part of a GPU by a metric of whole GPUs says nothing: DCGM and AMD's exporter show 0 there.
    """
    pod, namespace = _first(labels, names.pod), _first(labels, names.namespace)
    is_part = any(labels.get(each, "") not in ("", "0") for each in names.part)
    if not (pod and namespace) or not math.isfinite(value) or (is_part and metric.is_of_whole_gpus):
        return None
    gpu = tuple(labels.get(each, "") for each in names.gpu)
    return GpuSeries(Namespace(namespace), pod, gpu, value * _FULL_PERCENT / metric.full, metric.is_of_whole_gpus)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
