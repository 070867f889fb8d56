"""The findings for a screen: a line for each, with what to do below what is wrong."""

from collections import Counter
from collections.abc import Iterable
from io import StringIO
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from webhook.cli.doctor.findings import Finding, State
from webhook.cli.formatting import plural

_STYLES: Final = {State.OK: "green", State.WRONG: "bold red", State.UNKNOWN: "magenta", State.SKIPPED: "dim"}


def to_table(findings: Iterable[Finding], *, width: int, is_colored: bool) -> str:
    """Write the findings for a screen of this width."""
    out, found = StringIO(), list(findings)
    console = Console(file=out, width=width, force_terminal=is_colored, no_color=not is_colored, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("check", "state", "found"):
        table.add_column(column, overflow="fold")
    before = None
    for each in found:
        name = "" if each.check is before else each.check.value
        before = each.check
        told = Text(each.message)
        if each.remedy:
            told.append(f"\n-> {each.remedy}", style="cyan")
        table.add_row(Text(name), Text(each.state.value, style=_STYLES[each.state]), told)
    console.print(table, "", Text(_sum(found)), sep="\n")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _sum(findings: list[Finding]) -> str:
    counts = Counter(each.state for each in findings)
    if counts[State.WRONG]:
        unseen = f"; {plural(counts[State.UNKNOWN], 'check')} could not be made" if counts[State.UNKNOWN] else ""
        return f"{plural(counts[State.WRONG], 'problem')}{unseen}"
    if counts[State.UNKNOWN]:
        return f"nothing wrong was found, but {plural(counts[State.UNKNOWN], 'check')} could not be made"
    return "healthy"
