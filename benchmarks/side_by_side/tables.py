"""The tables of a comparison: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.side_by_side.figures import quantile
from benchmarks.side_by_side.loads import Work

if TYPE_CHECKING:
    from benchmarks.side_by_side.run import Reading

Figure = Callable[["Reading"], float | None]
Spread = Callable[[Sequence[float]], str]

COMMON: Final[Mapping[str, Figure]] = {
    "API server, CPU ms a pod": lambda reading: reading.milliseconds["API server"],
    "scheduler": lambda reading: reading.milliseconds["scheduler"],
    "controllers": lambda reading: reading.milliseconds["controllers"],
    "itself": lambda reading: reading.milliseconds["itself"],
    "API writes a pod": lambda reading: sum(reading.writes.values()) / reading.pods,
    "wait p50, s": lambda reading: quantile(reading.waits, 0.5),
    "p99": lambda reading: quantile(reading.waits, 0.99),
}
FAIRNESS: Final[Mapping[str, Figure]] = {
    "gap to the fair share, GPUs": lambda reading: reading.gap.largest,
    "on average": lambda reading: reading.gap.mean,
}
OWN: Final[Mapping[Work, Mapping[str, Figure]]] = {
    Work.JOBS: FAIRNESS,
    Work.GANGS: {
        **FAIRNESS,
        "gang, first pod to last, p50, s": lambda reading: quantile(reading.assembly, 0.5),
        "at most": lambda reading: quantile(reading.assembly, 1),
    },
    Work.DEPARTMENTS: {
        "GPUs evicted": lambda reading: reading.evicted_gpus,
        "beyond need": lambda reading: reading.evicted_gpus - reading.asked_gpus,
    },
    Work.QUEUE_RELEASES: {
        "came free, /s": lambda reading: reading.releases_per_second,
        "before all were created": lambda reading: reading.early_ends,
        **{
            f"{name}, {word}, s": lambda reading, name=name, share=share: quantile(reading.slots[name], share)  # type: ignore[misc]
            for name in ("freed to released", "freed to bound", "freed to running")
            for word, share in (("p50", 0.5), ("p99", 0.99))
        },
    },
}
LISTED_WRITES: Final = 8


def tables(
    work: Work, readings: Mapping[str, Sequence[Reading]], *, reasons: Mapping[str, str], spread: Spread
) -> Iterator[str]:
    """Yield the lines of the tables; a system without readings has its reason."""
    figures = {**COMMON, **OWN[work]}
    yield from ("", _row(["", "all done, s" if work is not Work.DEPARTMENTS else "all run, s", *figures]))
    yield _row(["---"] * (len(figures) + 2))
    for name, found in readings.items():
        if found:
            yield _row([name, _done(found, spread), *(_cell(figure, found, spread) for figure in figures.values())])
        else:
            yield _row([name, reasons[name], *[""] * len(figures)])
    yield ""
    for name, found in readings.items():
        if found:
            yield f"{name}, API writes a pod: {_writes(found)}"


def _done(found: Sequence[Reading], spread: Spread) -> str:
    """The time until all was done, or how far those rounds came that were not."""
    times = [reading.seconds for reading in found if reading.seconds is not None]
    cut = [f"{reading.done} of {reading.pods}" for reading in found if reading.seconds is None]
    return ", ".join([*([spread(times)] if times else []), *(f"given up at {each}" for each in cut)])


def _cell(figure: Figure, found: Sequence[Reading], spread: Spread) -> str:
    values = [value for reading in found if (value := figure(reading)) is not None]
    return spread(values) if values else ""


def _writes(found: Sequence[Reading]) -> str:
    """What is written most, per pod, in the middle of the rounds."""
    kinds = Counter(
        {kind: round(median(each.writes[kind] / each.pods for each in found), 2) for kind in found[0].writes}
    )
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(LISTED_WRITES) if count)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
