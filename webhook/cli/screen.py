"""Tables and text that rich lays out for a terminal or a pipe. Slow to import: commands do so when they run."""

from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table


class Screen(Console):
    """Collects what is printed on it, as text of this width."""

    def __init__(self, *, width: int, is_colored: bool) -> None:
        self._out = StringIO()
        super().__init__(
            file=self._out, width=width, force_terminal=is_colored, no_color=not is_colored, highlight=False
        )

    @property
    def text(self) -> str:
        """All lines, without spaces at their ends."""
        return "\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n"


def grid(*columns: str) -> Table:
    """Return a table without lines; columns whose names begin with > are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if is_number else "left", overflow="fold")
    return table


def progress(text: str) -> AbstractContextManager[Any]:
    """Show on a terminal's standard error that something is under way, until the block ends."""
    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()
