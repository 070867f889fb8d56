"""Terminal output. It has names chosen by users, which must not break a table or send control sequences."""

import click
from rich.text import Text

from webhook.core.model.text import printable
from webhook.input_error import InputError


class Line(Text):
    """Text on one line; line breaks, ANSI sequences and other control characters are escaped."""

    def __init__(self, text: str = "", style: str = "") -> None:
        super().__init__(printable(text), style)


def print_problems(error: InputError) -> None:
    """Print an error to standard error: one line, or a line for each of its problems."""
    for problem in error.problems:
        print_error(problem)


def print_error(problem: object) -> None:
    """Print a problem to standard error, on one line."""
    click.echo(f"fairgate: {printable(str(problem))}", err=True)
