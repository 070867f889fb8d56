"""Findings as a table for terminals: a line for each, with the remedy below."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.text import Text

from webhook.cli.doctor.findings import Finding, State
from webhook.cli.formatting import plural
from webhook.cli.grid import Grid, prose
from webhook.cli.screen import Screen

_STYLES: Final = {State.OK: "green", State.WRONG: "bold red", State.UNKNOWN: "magenta", State.SKIPPED: "dim"}


def to_table(findings: Iterable[Finding], *, width: int, is_colored: bool) -> str:
    """Return the findings as a table of this width."""
    found = list(findings)
    screen = Screen(width=width, is_colored=is_colored)
    table = Grid("check", "state", prose("found"))
    before = None
    for each in found:
        name = "" if each.check is before else each.check.value
        before = each.check
        message = Text(each.message)
        if each.remedy:
            message.append(f"\n-> {each.remedy}", style="cyan")
        table.add_row(Text(name), Text(each.state.value, style=_STYLES[each.state]), message)
    screen.show(table, "", _summary(found))
    return screen.text


def _summary(findings: list[Finding]) -> str:
    counts = Counter(each.state for each in findings)
    if counts[State.WRONG]:
        unknown = f"; {plural(counts[State.UNKNOWN], 'check')} not possible" if counts[State.UNKNOWN] else ""
        return f"{plural(counts[State.WRONG], 'problem')}{unknown}"
    if counts[State.UNKNOWN]:
        return f"no problem found, but {plural(counts[State.UNKNOWN], 'check')} not possible"
    return "healthy"
