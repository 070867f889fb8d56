"""What goes to a terminal: names that others chose are in it, and none may break a table or move the cursor."""

import click
from rich.text import Text

from webhook.core.model.text import printable


class Line(Text):
    """A text on one line; line breaks, ANSI sequences and other control characters are written as escapes."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(printable(text), style)


def complain(problem: object) -> None:
    """Write to standard error what is wrong, on one line."""
    click.echo(f"fairgate: {printable(str(problem))}", err=True)
