"""Counts the decisions in servers' logs by workload and outcome, in bounded memory."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Final

import msgspec

MOST_ROWS: Final = 10_000
OTHERS: Final = "others"
"""Name of the row for all further workloads after so many rows."""

_OUTCOMES: Final = {"deny": "refused", "retry": "asked again", "warn": "warned of"}
_ORDER: Final = ("refused", "warned of", "asked again", "preemptible", "guaranteed")


class LogLine(msgspec.Struct):
    """The fields of a decision's log line that are read."""

    event: str = ""
    time: str = ""
    phase: str = ""
    operation: str = ""
    namespace: str = ""
    name: str = ""
    owner: str = ""
    team: str = ""
    tier: str = ""
    gpus: float | str = 0  # text in lines of 0.1.0
    outcome: str = ""
    code: str = ""
    nodes: list[str] | str = ""  # text in lines of 0.1.0
    dry_run: bool = False
    message: str = ""
    enforce: str = "enforce"
    would: str = ""


class Row(msgspec.Struct):
    """Decisions on one workload's pods with the same outcome."""

    outcome: Annotated[str, msgspec.Meta(description="refused, warned of, asked again, preemptible or guaranteed")]
    enforced: Annotated[bool, msgspec.Meta(description="false: the policy was not enforced, this would be the outcome")]
    code: str
    team: str
    namespace: str
    who: str
    decisions: int = 0
    gpus: float = 0
    placed: Annotated[int, msgspec.Meta(description="decisions that chose nodes")] = 0
    first: str = ""
    last: str = ""
    message: Annotated[str, msgspec.Meta(description="of the last one")] = ""


class Report(msgspec.Struct):
    """All rows, refusals first, then by GPUs."""

    first: str
    last: str
    decisions: int
    unread: Annotated[int, msgspec.Meta(description="lines that are no JSON")]
    rows: list[Row]
    read: Annotated[int, msgspec.Meta(description="lines that are JSON")] = 0


def tally(lines: Iterable[bytes]) -> Report:
    """Count the decisions on new pods and workloads in log lines; other lines are skipped."""
    rows: dict[tuple[Any, ...], Row] = {}
    decoder = msgspec.json.Decoder(LogLine)
    report = Report("", "", 0, 0, [])
    for raw in lines:
        if not (line_start := raw.lstrip()[:1]):
            continue
        if line_start != b"{":  # a console line may begin with a number, which is also JSON
            report.unread += 1
            continue
        try:
            line = decoder.decode(raw)
            report.read += 1
        except msgspec.ValidationError:
            report.read += 1
            continue  # another event: in `world loaded`, `nodes` is a number
        except (msgspec.MsgspecError, UnicodeDecodeError):
            report.unread += 1
            continue
        outcome = _outcome(line)
        if outcome is not None:
            _count(line, outcome, rows, report)
    report.rows = sorted(rows.values(), key=lambda row: (_ORDER.index(row.outcome), -row.gpus, row.namespace, row.who))
    return report


def _outcome(line: LogLine) -> str | None:
    """Return the outcome of a decision; None for lines that are skipped.

    An admitted pod has a line of each webhook, a refused pod only of the first.
    """
    if line.event != "decision" or line.operation != "CREATE" or line.dry_run:
        return None
    is_enforced = line.enforce == "enforce"
    verdict = line.outcome if is_enforced else line.would
    if is_enforced and line.phase == "mutate" and verdict != "deny":
        return None
    if verdict == "admit":
        return line.tier if line.tier in _ORDER else None
    return _OUTCOMES.get(verdict)


def _count(line: LogLine, outcome: str, rows: dict[tuple[Any, ...], Row], report: Report) -> None:
    is_enforced, who = line.enforce == "enforce", line.owner or (line.name if "/" in line.name else f"Pod/{line.name}")
    key = (outcome, is_enforced, line.code, line.team, line.namespace, who)
    if key not in rows and len(rows) >= MOST_ROWS:
        key = (outcome, is_enforced, line.code, line.team, "", OTHERS)
    row = rows.setdefault(key, Row(*key, first=line.time))
    row.decisions += 1
    row.gpus = round(row.gpus + _amount(line.gpus), 6)
    row.placed += bool(line.nodes)
    row.first, row.last = min(row.first, line.time), max(row.last, line.time)
    row.message = line.message
    report.decisions += 1
    report.first = min(report.first or line.time, line.time)
    report.last = max(report.last, line.time)


def _amount(gpus: float | str) -> float:
    if not isinstance(gpus, str):
        return gpus
    try:
        return float(Fraction(gpus)) if gpus else 0.0
    except (ValueError, ZeroDivisionError):
        return 0.0
