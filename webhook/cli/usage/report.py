"""The report of `fairgate usage`: sums of recorded usage, as a table, CSV or JSON."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from webhook.cli.grid import Grid, number
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.cli.usage.times import time_text
from webhook.history.summary import By, UsageSum, merged, observed_hours, total, usage_by
from webhook.history.usage_row import Recording

_NONE: Final = "(none)"
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
_DIGITS: Final = 6
_SMALL: Final = 10


class UsageReport(msgspec.Struct):
    """Usage from `since` to `until`; `observed_hours` of that time were recorded."""

    since: str
    until: str
    by: str
    hours: float
    observed_hours: float
    usage: list[UsageSum]
    total: UsageSum


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
    )


def to_csv(report: UsageReport) -> str:
    """Return the lines as CSV, without the total; a name that a spreadsheet would compute is quoted."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((report.by, *UsageSum.__struct_fields__[1:]))
    for each in report.usage:
        name = f"'{each.name}" if each.name.startswith(_FORMULAS) else each.name
        writer.writerow((name, *("" if value is None else value for value in _values(each))))
    return file.getvalue()


def to_table(report: UsageReport, *, limit: int, width: int, is_colored: bool) -> str:
    """Return the first lines as a table, in GPU-hours, with what the numbers cover."""
    screen = Screen(width=width, is_colored=is_colored)
    refused = (number("refused", goes=2), number("GPUs refused", goes=1))
    table = Grid(report.by, *map(number, ("guaranteed", "borrowed", "idle", "waiting")), *refused)
    for each in (*report.usage[:limit], report.total):
        table.add_row(Line(each.name or _NONE), *(Line(_number(value)) for value in _values(each)))
    screen.show(table)
    screen.show_rest(len(report.usage) - limit, report.by)
    screen.show(
        "",
        f"GPU-hours from {report.since} to {report.until}; recorded {_number(report.observed_hours)} of "
        f"{_number(report.hours)} hours. Refused: requests, and the GPUs that they asked for.",
    )
    return screen.text


def _values(line: UsageSum) -> Sequence[float | None]:
    return (line.guaranteed, line.borrowed, line.idle, line.waiting, line.refused, line.refused_gpus)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value >= _SMALL else f"{value:,.2f}"
