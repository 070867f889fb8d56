"""What `fairgate usage` shows, and the times that it is asked for.

Times on the command line: an age such as 7d, or a time of day such as 2026-11-23T08:00:00Z.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from webhook.addons.history.meter import Recording
from webhook.addons.history.reader import By, Ratios, UsageSum, merged, observed_hours, ratios, total, usage_by
from webhook.cli.grid import Grid, Line, number
from webhook.cli.output import wait_text
from webhook.cli.screen import Screen

_AGE: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_LONGEST: Final = 60
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_time(text: str, *, now: float) -> float:
    """Return a time in seconds of Unix time. Raises ValueError with the expected forms."""
    if text == "now":
        return now
    if (age := _AGE.fullmatch(text)) is not None:
        return now - int(age[1]) * _SECONDS[age[2]]
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        expected = "an age such as 7d, 24h or 30m, or a time such as 2026-11-23T08:00:00Z"
        raise ValueError(f"expected {expected}, got {text[:_LONGEST]!r}") from None


def time_text(time: float) -> str:
    """Return a time in UTC, as RFC 3339 has it."""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The report of `fairgate usage`: sums of recorded usage, as a table, CSV or JSON.


_NONE: Final = "(none)"
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_DIGITS: Final = 6
_SMALL: Final = 10


class UsageReport(msgspec.Struct, rename="camel"):
    """Usage from `since` to `until`; `observed_hours` of that time were recorded."""

    since: str
    until: str
    by: str
    hours: float
    observed_hours: float
    usage: list[UsageSum]
    total: UsageSum
    ratios: Ratios


def build(recordings: Iterable[Recording], by: By, *, since: float, until: float) -> UsageReport:
    """Return the report of what was recorded in a time range."""
    rows = merged(recordings)
    return UsageReport(
        since=time_text(since),
        until=time_text(until),
        by=by.value,
        hours=round((until - since) / 3600, _DIGITS),
        observed_hours=round(observed_hours(rows), _DIGITS),
        usage=[each.rounded() for each in usage_by(rows, by)],
        total=total(rows).rounded(),
        ratios=ratios(rows),
    )


def to_csv(report: UsageReport) -> str:
    """Return the lines as CSV, without the total; a name that a spreadsheet would compute is quoted."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((report.by, *UsageSum.__struct_fields__[1:]))
    for each in report.usage:
        name = f"'{each.name}" if each.name.startswith(_FORMULAS) else each.name
        writer.writerow((name, *("" if value is None else value for value in (*_values(each), each.held_idle))))
    return file.getvalue()


def to_table(report: UsageReport, *, limit: int, width: int, is_colored: bool) -> str:
    """Return the first lines as a table, in GPU-hours, with what the numbers cover."""
    screen = Screen(width=width, is_colored=is_colored)
    refused = (number("refused", goes=2), number("GPUs refused", goes=1))
    is_measured = report.total.held_idle is not None
    first = ("unused",) if is_measured else ()
    amounts = ("guaranteed", "preemptible", "idle", "waiting", "lost", "moved", "saved")
    table = Grid(report.by, *map(number, (*first, *amounts)), *refused)
    for each in (*report.usage[:limit], report.total):
        values = (*((each.held_idle,) if is_measured else ()), *_values(each))
        table.add_row(Line(each.name or _NONE), *(Line(_number(value)) for value in values))
    screen.show(table)
    screen.show_rest(len(report.usage) - limit, report.by)
    screen.show(
        "",
        f"GPU-hours from {report.since} to {report.until}; recorded {_number(report.observed_hours)} of "
        f"{_number(report.hours)} hours. Idle: shares without guaranteed pods; lost: to evictions; moved: to moves; "
        "saved: by checkpoints after a warning. Refused: requests.",
    )
    if report.total.held_idle is not None:
        held = report.total.guaranteed + report.total.preemptible
        share = f"{report.total.held_idle / held:.1%} of what was held" if held else "nothing was held"
        screen.show(f"Unused: GPUs of pods that did not use them, {share}.")
    if report.ratios.occupancy is not None:
        screen.show(*map(Line, _ratio_texts(report.ratios)))
    if report.ratios.waits:
        screen.show("", _waits(report.ratios))
    return screen.text


def _ratio_texts(found: Ratios) -> Iterator[str]:
    allocated, occupied = f"{found.allocation or 0:.1%}", f"{found.occupancy or 0:.1%}"
    yield f"GPUs held: {allocated} at the end, {occupied} on average."
    partly, beyond = f"{found.fragmentation or 0:.1%}", f"{found.beyond_fewest or 0:.1%}"
    yield f"{partly} of the nodes were only partly used. Beyond the fewest that gangs need: {beyond} of their nodes."


def _waits(found: Ratios) -> Grid:
    """Return how long jobs waited, by size."""
    table = Grid("GPUs of the job", *map(number, ("started", "wait p50", "p90", "p99")))
    for each in found.waits:
        waits = (each.wait_p50, each.wait_p90, each.wait_p99)
        table.add_row(*map(Line, (each.size, f"{each.jobs:,}", *map(_wait_text, waits))))
    return table


def _wait_text(seconds: float | None) -> str:
    return "longer" if seconds is None else f"≤{wait_text(seconds)}"


def _values(line: UsageSum) -> Sequence[float | None]:
    """Return the amounts in the order of the fields, without `held_idle`, the last."""
    return msgspec.structs.astuple(line)[1:-1]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value >= _SMALL else f"{value:,.2f}"
