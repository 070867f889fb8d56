"""The verdicts: which pods do not use their GPUs, by their readings of the last minutes or hours.

The clock is kept by workload: a pod that replaces another one continues with its readings. Pods of a gang are judged
together, by what most of its GPUs do. Time is an argument, in seconds of Unix time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from webhook.core.idle.idle_window import IdleWindow, Reading, WindowBounds
from webhook.core.idle.utilization import PodKey, PodUtilization
from webhook.core.model.amount import Units
from webhook.core.model.idle_rules import IdleRules, IdleTerms
from webhook.core.model.names import GangId, TeamName, Uid

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
