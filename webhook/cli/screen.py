"""Tables and text for a terminal or a pipe. Slow to import: commands do so when they run."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from typing import Any

from rich.console import Console
from rich.text import Text

from webhook.cli.grid import Grid, wrapped
from webhook.cli.options import shows_progress
from webhook.core.model.amounts import plural

Part = Grid | Text | str


class Screen:
    """Collects what is shown on it, as text of this width."""

    def __init__(self, *, width: int, is_colored: bool) -> None:
        self._width = width
        self._is_colored = is_colored
        self._lines: list[Text] = []
        self._left_out: dict[str, None] = {}

    @property
    def text(self) -> str:
        """All lines, without spaces at their ends; at the end, which columns there was no room for."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        lines = [*self._lines, *self._note()]
        if not self._is_colored:
            return [line.plain.rstrip() for line in lines]
        out = StringIO()
        console = Console(file=out, force_terminal=True, highlight=False)
        console.print(Text("\n").join(lines), soft_wrap=True)
        return [line.rstrip() for line in out.getvalue().splitlines()]

    def show(self, *parts: Part) -> None:
        """Show tables and texts below each other; texts break between words."""
        for part in parts:
            self._lines += self._rendered(part, self._width)

    def show_rest(self, count: int, noun: str) -> None:
        """Show how many rows of a list are not shown, if there are any."""
        if count > 0:
            self.show(f"and {plural(count, f'more {noun}')}: --limit or -o json shows them")

    def show_whole(self, *texts: Text | str) -> None:
        """Show texts whose lines are not broken, such as a diff."""
        for text in texts:
            self._lines += (text if isinstance(text, Text) else Text(text)).split("\n", allow_blank=True)

    def show_steps(self, steps: Iterable[tuple[str, Sequence[Part]]]) -> None:
        """Show names in a column, and beside each one its parts below each other."""
        listed = list(steps)
        indent = min(max((len(name) for name, _ in listed), default=0) + 2, self._width // 3)
        for name, parts in listed:
            lines = [line for part in parts for line in self._rendered(part, self._width - indent)]
            if len(name) + 2 > indent:
                lines.insert(0, Text())
            for number, line in enumerate(lines):
                self._lines.append(Text.assemble((f"{'' if number else name:{indent}}", "bold"), line))

    def _rendered(self, part: Part, width: int) -> list[Text]:
        if isinstance(part, Grid):
            fitted = part.fitted(width)
            self._left_out |= dict.fromkeys(fitted.left_out)
            return fitted.lines
        return wrapped(Text(part) if isinstance(part, str) else part, width)

    def _note(self) -> list[Text]:
        if not self._left_out:
            return []
        note = f"no room at {plural(self._width, 'column')} for: {', '.join(self._left_out)}; a pipe shows all"
        return wrapped(Text(note, style="dim"), self._width)


def progress(text: str) -> AbstractContextManager[Any]:
    """Show on a terminal's standard error that something is under way, until the block ends."""
    return Console(stderr=True).status(text) if shows_progress() else nullcontext()
