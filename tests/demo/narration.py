"""The demo's output on a terminal: headings, texts, commands and pictures, with pauses for the reader."""

from __future__ import annotations

import select
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDTH = 100


@dataclass(frozen=True, slots=True)
class DemoOutput:
    """Writes to a console, and pauses `pace_seconds` after pictures and results."""

    console: Console
    pace_seconds: float

    @property
    def is_plain(self) -> bool:
        """Whether the terminal supports only ASCII."""
        return not self.console.encoding.startswith("utf")

    def chapter(self, title: str, story: str) -> None:
        """Begin a scenario."""
        self.console.print()
        self.console.print(Rule(Text(title, style="bold"), style="bold", characters=self._line("━", "=")))
        self.say(story)
        self.pause()

    def part(self, title: str) -> None:
        """Begin one half of a scenario."""
        self.console.print()
        self.console.print(Rule(title, align="left", style="dim", characters=self._line("─", "-")))

    def say(self, text: str | Text) -> None:
        """Write a paragraph."""
        self.console.print(text, highlight=False, markup=False)

    def list(self, text: str) -> None:
        """Write lines without wrapping, for copying."""
        self.console.print(Text(text), soft_wrap=True)

    def ran(self, command: str, output: str) -> None:
        """Show a command and what it printed."""
        self.console.print()
        lines = textwrap.wrap(command, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
        self.console.print(Text.assemble(("$ ", "dim"), (" \\\n    ".join(lines), "bold")), soft_wrap=True)
        for line in output.strip().splitlines():
            self.console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False))

    def picture(self, drawn: Text) -> None:
        """Show a picture and pause."""
        self.console.print(drawn)
        self.pause()

    def outcome(self, text: str) -> None:
        """Show a result and pause."""
        self.console.print(Text.assemble((self._line("→ ", "=> "), "bold green"), (text, "bold")))
        self.pause()

    def summary(self, rows: Iterable[Sequence[str]]) -> None:
        """Show all results as a table."""
        table = Table(title="What came of it", title_justify="left", title_style="bold")
        for column in ("", "without Fairgate", "with Fairgate"):
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        self.console.print()
        self.console.print(table)

    def pause(self) -> None:
        """Pause; on a terminal, the Enter key ends the pause."""
        if not self.pace_seconds:
            return
        if not sys.stdin.isatty():
            time.sleep(self.pace_seconds)
        elif select.select([sys.stdin], [], [], self.pace_seconds)[0]:
            sys.stdin.readline()

    def _line(self, sign: str, ascii_sign: str) -> str:
        return ascii_sign if self.is_plain else sign
