"""The formats of traces, recognized by their columns: Fairgate's own, openb's (Alibaba), and that of Helios."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from webhook.core.model.gang import MAX_MEMBERS
from webhook.core.model.tier import TIERS, Tier
from webhook.simulation.traces.cells import Cells
from webhook.simulation.traces.row import MAX_AMOUNT, MAX_GPUS, MAX_SECONDS, Row

_MIB: Final = 1 << 20
_SUFFIXES: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_PRIORITY: Final = 2_000_000_000
_WHOLE: Final = 1000


class Format(NamedTuple):
    """A format: the columns without which it cannot be read, those of times, and how a row is read."""

    name: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    read: Callable[[Cells, int], Row]


def recognized(columns: Collection[str]) -> Format | None:
    """Return the format that a header is of, by the columns that no other format has; None for another table."""
    return next((each for each in FORMATS if _MARKS[each.name] <= set(columns)), None)


def _plain(cells: Cells, line: int) -> Row:
    tier = cells.text("tier")
    if tier and tier not in TIERS:
        cells.problems.append(f"tier: got {tier[:20]!r}; expected {' or '.join(Tier)}")
    return Row(
        line,
        cells.text("name") or f"task-{line}",
        cells.number("gpus", most=MAX_GPUS),
        cells.time("created") or 0,
        cells.number("seconds", most=MAX_SECONDS),
        pods=cells.number("pods", least=1, most=MAX_MEMBERS, default=1),
        milli=cells.number("gpu_milli", least=1, most=_WHOLE, default=_WHOLE),
        team=cells.text("team"),
        namespace=cells.text("namespace"),
        user=cells.text("user"),
        cpu=cells.thousandths("cpu", most=MAX_AMOUNT, default=0),
        memory=_memory(cells),
        models=_words(cells.text("model")),
        gang=cells.text("gang"),
        priority=cells.number("priority", least=-_PRIORITY, most=_PRIORITY, default=0),
        tier=TIERS.get(tier),
    )


def _memory(cells: Cells) -> int:
    """Return bytes; a cell may end with Mi or Gi, as in Kubernetes."""
    text = cells.text("memory")
    unit = _SUFFIXES.get(text[-2:], 1)
    if unit == 1:
        return cells.number("memory", most=MAX_AMOUNT, default=0)
    scaled = Cells({"memory": text[:-2]})
    amount = scaled.number("memory", most=MAX_AMOUNT // unit) * unit
    cells.problems += scaled.problems
    return amount


def _openb(cells: Cells, line: int) -> Row:
    created, begun, ended = (cells.time(each) for each in ("creation_time", "scheduled_time", "deletion_time"))
    gpus = cells.number("num_gpu", most=MAX_GPUS)
    return Row(
        line,
        cells.text("name") or f"task-{line}",
        gpus,
        created or 0,
        _between(cells, created, begun, ended),
        milli=cells.number("gpu_milli", least=0, most=_WHOLE) or _WHOLE if gpus else _WHOLE,
        cpu=cells.number("cpu_milli", most=MAX_AMOUNT, default=0),
        memory=cells.number("memory_mib", most=MAX_AMOUNT // _MIB, default=0) * _MIB,
        models=_words(cells.text("gpu_spec")),
    )


def _between(cells: Cells, created: int | None, begun: int | None, ended: int | None) -> int:
    """Return how long a task ran; its times must not run backwards."""
    if created is None and begun is None and ended is None:
        return 0  # a task without times, for a load that draws them
    if created is None or ended is None:
        cells.problems.append("creation_time and deletion_time: got nothing; expected times in seconds")
        return 0
    begun = created if begun is None else begun
    if not created <= begun <= ended:
        cells.problems.append(
            f"times run backwards: created {created}, scheduled {begun}, deleted {ended}; expected this order"
        )
        return 0
    return ended - begun


def _helios(cells: Cells, line: int) -> Row:
    created, begun, ended = (cells.time(each) for each in ("submit_time", "start_time", "end_time"))
    seconds = cells.number("duration", most=MAX_SECONDS)
    if begun is not None and ((created is not None and begun < created) or (ended is not None and ended < begun)):
        cells.problems.append("times run backwards; expected submit_time, start_time and end_time in this order")
    return Row(
        line,
        cells.text("job_id") or f"job-{line}",
        cells.number("gpu_num", most=MAX_GPUS),
        created or 0,
        seconds,
        team=cells.text("vc"),
        user=cells.text("user"),
        is_job=True,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split("|") if word.strip())


FORMATS: Final = (
    Format("openb", ("name", "num_gpu", "gpu_milli"), ("creation_time", "deletion_time"), _openb),
    Format("Helios", ("job_id", "gpu_num", "duration"), ("submit_time",), _helios),
    Format("Fairgate", ("gpus", "seconds"), ("created",), _plain),
)
_MARKS: Final = {"openb": {"num_gpu"}, "Helios": {"gpu_num"}, "Fairgate": {"gpus"}}
