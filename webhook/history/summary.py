"""Answers from recorded usage: merged over recorders, summed by team and the like, and as lines over time. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from webhook.core.explain.cluster_use import ClusterUse
from webhook.core.explain.job_waits import SIZES, percentiles_of
from webhook.history.usage_row import (
    INTERVAL_SECONDS,
    OF_EVICTIONS,
    OF_USE,
    Recording,
    UsageKey,
    UsageKind,
    UsageRow,
    group_of,
)

HOUR_SECONDS: Final = 3600
_DIGITS: Final = 6


class By(StrEnum):
    """What usage is summed by."""

    TEAM = "team"
    USER = "user"
    MODEL = "model"
    TIER = "tier"
    DEPARTMENT = "department"


class UsageSum(msgspec.Struct):
    """GPU-hours of one team, user, model, tier or department, or of the cluster: of pods that held GPUs or waited.

    `idle` were not held, None where no GPU can be attributed. `lost` is work of evicted pods that is done again,
    `moved` that of pods that were moved, `saved` what they saved after their warning. `refused` are requests,
    `refused_gpus` what they asked for. `held_idle` were held and not used, None where that is not known.
    """

    name: str
    guaranteed: float = 0.0
    preemptible: float = 0.0
    idle: float | None = None
    waiting: float = 0.0
    lost: float = 0.0
    moved: float = 0.0
    saved: float = 0.0
    refused: int = 0
    refused_gpus: float = 0.0
    held_idle: float | None = None

    def rounded(self) -> "UsageSum":
        """Return it with numbers as they are printed."""
        found = msgspec.structs.asdict(self).items()
        return msgspec.structs.replace(self, **{k: round(v, _DIGITS) for k, v in found if isinstance(v, float)})


@dataclass(frozen=True, slots=True)
class UsageOverTime:
    """A team over time: average GPUs of each step, None where nothing was recorded."""

    guaranteed: Sequence[float | None]
    preemptible: Sequence[float | None]
    waiting: Sequence[float | None]
    refused: Sequence[int | None]


def merged(recordings: Iterable[Recording]) -> list[UsageRow]:
    """Return one row for each key of an interval, from what several replicas recorded of the same cluster.

    Each of them sees all pods, and can only miss something while it does not run: what was held is taken from the one
    that observed the interval longest, so nothing counts twice. Refusals are known only to the replica that answered:
    they add up.
    """
    intervals: dict[int, dict[str, list[UsageRow]]] = {}
    for recording in recordings:
        for row in recording.rows:
            intervals.setdefault(row.start, {}).setdefault(recording.name, []).append(row)
    rows: list[UsageRow] = []
    for start in sorted(intervals):
        by_name = intervals[start]
        best = max(sorted(by_name), key=lambda name: _observed(by_name[name]))
        rows += [row for row in by_name[best] if row.key.kind not in _ADDED]
        sums: dict[UsageKey, UsageRow] = {}
        for row in (row for found in by_name.values() for row in found if row.key.kind in _ADDED):
            before = sums.get(row.key)
            sums[row.key] = row if before is None else row._replace(amount=row.amount + before.amount)
        rows += sums.values()
    return rows


_ADDED: Final = frozenset({UsageKind.REFUSED, UsageKind.REFUSED_GPUS})


def _observed(rows: Iterable[UsageRow]) -> float:
    return sum(row.amount for row in rows if row.key.kind is UsageKind.OBSERVED)


def usage_by(rows: Iterable[UsageRow], by: By) -> list[UsageSum]:
    """Return the sums by name, those that held most first."""
    sums: dict[str, UsageSum] = {}
    for row in rows:
        if (name := _name(row, by)) is not None:
            _add(sums.setdefault(name, UsageSum(name)), row)
    return sorted(sums.values(), key=lambda each: (-(each.guaranteed + each.preemptible), each.name))


def total(rows: Iterable[UsageRow]) -> UsageSum:
    """Return the sum of the cluster; idle are the free GPUs of its nodes."""
    found = UsageSum("total")
    for row in rows:
        if row.key.kind is not UsageKind.UNUSED:
            _add(found, row)
    return found


class SizeWaits(msgspec.Struct):
    """Jobs of one class of sizes that started, and for how many seconds 50, 90 and 99 percent of them waited at most.

    Null is longer than three days.
    """

    size: str
    jobs: int
    wait_p50: float | None
    wait_p90: float | None
    wait_p99: float | None


class Ratios(msgspec.Struct):
    """How the cluster was used, as parts of 1; null where no GPUs were recorded."""

    allocation: float | None = None
    occupancy: float | None = None
    fragmentation: float | None = None
    beyond_fewest: float | None = None
    waits: list[SizeWaits] = []


def ratios(rows: Iterable[UsageRow]) -> Ratios:
    """Return the ratios of a time range; the allocation is that of its last interval."""
    uses: dict[int, dict[UsageKind, float]] = {}
    waits: dict[str, dict[float, int]] = {}
    for row in rows:
        kind = row.key.kind
        if kind in _USE:
            uses.setdefault(row.start, {})[kind] = row.amount
        elif kind is UsageKind.STARTED and (group := group_of(row.key)) is not None:
            size, bound = group
            counts = waits.setdefault(size, {})
            counts[bound] = counts.get(bound, 0) + round(row.amount)
    found = Ratios(waits=[SizeWaits(size, *percentiles_of(waits[size])) for size in SIZES if size in waits])
    if uses:
        last, total = (_use(each) for each in ([uses[max(uses)]], uses.values()))
        found.allocation, found.occupancy = round(last.allocation, _DIGITS), round(total.allocation, _DIGITS)
        found.fragmentation, found.beyond_fewest = (
            round(total.fragmentation, _DIGITS),
            round(total.beyond_fewest, _DIGITS),
        )
    return found


def _use(amounts: Iterable[Mapping[UsageKind, float]]) -> ClusterUse:
    """Return the amounts of some intervals together."""
    found = list(amounts)
    return ClusterUse(*(sum(each.get(kind, 0.0) for each in found) for kind in OF_USE))


_USE: Final = frozenset(OF_USE)


def observed_hours(rows: Iterable[UsageRow]) -> float:
    """Return for how many hours the cluster was observed."""
    return _observed(rows) / HOUR_SECONDS


def team_lines(
    rows: Iterable[UsageRow], *, since: float, until: float, step_seconds: int
) -> Mapping[str, UsageOverTime]:
    """Return a line for each team with usage; `step_seconds` is a multiple of INTERVAL_SECONDS."""
    steps = max(0, -int(-(until - since) // step_seconds))
    observed = [False] * steps
    amounts: dict[str, dict[UsageKind, list[float]]] = {}
    for row in rows:
        step = int((row.start - since) // step_seconds)
        if not 0 <= step < steps:
            continue
        if row.key.kind is UsageKind.OBSERVED:
            observed[step] = True
        elif row.key.team and row.key.kind in _LINES:
            kinds = amounts.setdefault(row.key.team, {kind: [0.0] * steps for kind in _LINES})
            kinds[row.key.kind][step] += row.amount
    seconds = [
        min(step_seconds, until - since - step * step_seconds) if observed[step] else None for step in range(steps)
    ]
    return {team: _line(kinds, seconds) for team, kinds in sorted(amounts.items())}


_LINES: Final = (UsageKind.HELD_GUARANTEED, UsageKind.HELD_PREEMPTIBLE, UsageKind.WAITING, UsageKind.REFUSED)


def _line(amounts: Mapping[UsageKind, Sequence[float]], seconds: Sequence[float | None]) -> UsageOverTime:
    def averages(kind: UsageKind) -> list[float | None]:
        return [amount / of if of else None for amount, of in zip(amounts[kind], seconds, strict=True)]

    refused = [int(count) if of else None for count, of in zip(amounts[UsageKind.REFUSED], seconds, strict=True)]
    return UsageOverTime(
        averages(UsageKind.HELD_GUARANTEED), averages(UsageKind.HELD_PREEMPTIBLE), averages(UsageKind.WAITING), refused
    )


def _name(row: UsageRow, by: By) -> str | None:
    """Return the name that a row counts to; None where it counts to none."""
    key = row.key
    match by:
        case By.TEAM:
            return key.team or None
        case By.DEPARTMENT:
            return row.department if key.team else None
        case By.USER:
            return key.user if key.team and key.kind is not UsageKind.UNUSED else None
        case By.MODEL:
            return key.model if key.kind in (*_HELD, *OF_EVICTIONS, UsageKind.HELD_IDLE, UsageKind.FREE) else None
        case By.TIER:
            return _TIERS.get(key.kind)


_HELD: Final = (UsageKind.HELD_GUARANTEED, UsageKind.HELD_PREEMPTIBLE)
_TIERS: Final = {UsageKind.HELD_GUARANTEED: "guaranteed", UsageKind.HELD_PREEMPTIBLE: "preemptible"}


_HOURS: Final = {
    UsageKind.HELD_GUARANTEED: "guaranteed",
    UsageKind.HELD_PREEMPTIBLE: "preemptible",
    UsageKind.HELD_IDLE: "held_idle",
    UsageKind.WAITING: "waiting",
    UsageKind.UNUSED: "idle",
    UsageKind.FREE: "idle",
} | {kind: kind.value for kind in OF_EVICTIONS}
"""The field of UsageSum that a kind of GPU-seconds counts to."""


def _add(found: UsageSum, row: UsageRow) -> None:
    kind = row.key.kind
    if (name := _HOURS.get(kind)) is not None:
        setattr(found, name, (getattr(found, name) or 0.0) + row.amount / HOUR_SECONDS)
    elif kind is UsageKind.REFUSED:
        found.refused += round(row.amount)
    elif kind is UsageKind.REFUSED_GPUS:
        found.refused_gpus += row.amount


def whole_intervals(since: float, until: float) -> tuple[int, int]:
    """Return a time range widened to whole intervals."""
    start = int(since // INTERVAL_SECONDS) * INTERVAL_SECONDS
    return start, -int(-until // INTERVAL_SECONDS) * INTERVAL_SECONDS
