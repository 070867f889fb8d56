"""Reads a trace from text: a table (CSV) with a header, or Philly's list of jobs (JSON). Problems have their line."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core.model.text import printable, shortened
from webhook.simulation.traces.cells import Cells
from webhook.simulation.traces.formats import FORMATS, Format, recognized
from webhook.simulation.traces.row import MAX_GPUS, MAX_ROWS, MAX_SECONDS, Row, TraceError, TraceRows

MAX_PROBLEMS: Final = 20
"""Problems that are reported of a trace."""

_LONGEST: Final = 200
_NO_GPUS: Final = "jobs without GPUs"
_NO_RUN: Final = "jobs without an attempt that has GPUs, a start and an end"
_NO_TIMES: Final = "tasks without a run time"


def read_trace(lines: Iterable[str], *, name: str, needs_times: bool = True) -> TraceRows:
    """Read a trace; without `needs_times` it may have none. Raises TraceError with all problems, at most twenty."""
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = [column.strip().lstrip("\ufeff") for column in reader.fieldnames or ()]
        reader.fieldnames = columns
        form = _format(columns, name, needs_times=needs_times)
        found = list(_rows(reader, form, name, needs_times=needs_times))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{name}:{reader.line_num + 1}: not a table: {error}") from error
    rows = [row for row in found if row.gpus or not row.is_job]
    if not rows:
        raise TraceError(f"{name}: has no task; expected a header and a line for each task")
    left_out = {_NO_GPUS: len(found) - len(rows)}
    if not needs_times and (timed := [row for row in rows if row.seconds]):
        left_out[_NO_TIMES] = sum(1 for row in rows if row.gpus and not row.seconds)
        rows = timed
    return TraceRows(rows, _counted(left_out))


def _counted(left_out: Mapping[str, int]) -> dict[str, int]:
    return {why: count for why, count in left_out.items() if count}


def _format(columns: Sequence[str], name: str, *, needs_times: bool) -> Format:
    if not any(columns):
        raise TraceError(f"{name}: is empty; expected a header and a line for each task")
    form = recognized(columns)
    if form is None:
        known = "; ".join(f"{each.name}: {', '.join(each.columns + each.times)}" for each in FORMATS)
        found = shortened(printable(", ".join(columns)), _LONGEST)
        raise TraceError(f"{name}:1: the columns are of no known format: {found}; expected those of {known}")
    wanted = form.columns + (form.times if needs_times else ())
    missing = [column for column in wanted if column not in columns]
    if missing:
        advice = ", or --load, which draws the times" if set(missing) <= set(form.times) else ""
        raise TraceError(f"{name}:1: {form.name}: columns are missing: {', '.join(missing)}{advice}")
    return form


def _rows(reader: "csv.DictReader[str]", form: Format, name: str, *, needs_times: bool) -> Iterator[Row]:
    problems: list[str] = []
    for number, cells_of in enumerate(reader):
        line = reader.line_num
        if number >= MAX_ROWS:
            raise TraceError(f"{name}:{line}: more than {MAX_ROWS:,} tasks; cut the trace first")
        if None in cells_of:
            problems.append(f"{name}:{line}: has more cells than the header")
        cells = Cells(cells_of)
        row = form.read(cells, line)
        if needs_times and not any(cells.text(column) for column in form.times):
            missing = " and ".join(form.times)
            cells.problems.append(f"{missing}: got nothing; expected seconds or a date, or --load, which draws times")
        problems += [f"{name}:{line}: {problem}" for problem in cells.problems]
        if len(problems) > MAX_PROBLEMS:
            break
        if not cells.problems:
            yield row
    if problems:
        more = ["and maybe more"] if len(problems) > MAX_PROBLEMS else []
        raise TraceError(*problems[:MAX_PROBLEMS], *(f"{name}: {each}" for each in more))


def read_philly(text: str, *, name: str) -> TraceRows:
    """Read Philly's `cluster_job_log`. Raises TraceError."""
    try:
        jobs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: not valid JSON: {error}") from error
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs) or len(jobs) > MAX_ROWS:
        raise TraceError(f"{name}: expected a list of at most {MAX_ROWS:,} jobs, as in Philly's cluster_job_log")
    rows, problems = [], []
    for number, job in enumerate(jobs, start=1):
        cells = Cells({"submitted_time": str(job.get("submitted_time") or "")})
        row = _philly(job, cells, number)
        problems += [f"{name}: job {number}: {problem}" for problem in cells.problems]
        if row.gpus:
            rows.append(row)
    if problems or not rows:
        raise TraceError(*(problems[:MAX_PROBLEMS] or [f"{name}: has no job that used GPUs"]))
    return TraceRows(rows, _counted({_NO_RUN: len(jobs) - len(rows)}))


def _philly(job: dict[str, Any], cells: Cells, number: int) -> Row:
    created = cells.time("submitted_time")
    if created is None:
        cells.problems.append("submitted_time: got nothing; expected a date")
    gpus, seconds = 0, 0
    for attempt in _objects(job, "attempts", cells):
        times = Cells({key: str(attempt.get(key) or "") for key in ("start_time", "end_time")})
        begun, ended = times.time("start_time"), times.time("end_time")
        cells.problems += times.problems
        if begun is None or ended is None:
            continue
        if ended < begun:
            cells.problems.append("times run backwards: an attempt ended before it started")
        seconds += ended - begun
        gpus = sum(_count(each.get("gpus")) for each in _objects(attempt, "detail", cells)) or gpus
    name, team, user = (str(job.get(key) or "") for key in ("jobid", "vc", "user"))
    if not (0 <= seconds <= MAX_SECONDS and gpus <= MAX_GPUS):
        cells.problems.append("its GPUs or its run time are out of all bounds")
    return Row(number, name or f"job-{number}", gpus, created or 0, seconds, team=team, user=user, is_job=True)


def _objects(found: dict[str, Any], key: str, cells: Cells) -> list[dict[str, Any]]:
    """Return a list of objects; anything else is a problem."""
    listed = found.get(key) or []
    if isinstance(listed, list) and all(isinstance(each, dict) for each in listed):
        return listed
    cells.problems.append(f"{key}: expected a list of objects")
    return []


def _count(found: object) -> int:
    return len(found) if isinstance(found, list) else 0
