"""Which outputs were asked for, and where each goes."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from webhook.cli import options


class Format(StrEnum):
    """The forms that a review can take."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class Output:
    """One output: its format, and its file; None for standard output."""

    format: Format
    file: Path | None = None

    @property
    def is_colored(self) -> bool:
        """Tell whether colour helps: on a terminal, unless the user said no."""
        return self.file is None and options.is_colored()

    @property
    def width(self) -> int:
        """Give the columns to fill: those of the terminal; a pipe has room for all."""
        return options.columns() if self.file is None else 500

    def write(self, text: str) -> None:
        """Write it out. Raises OSError where the file cannot be written."""
        if self.file is None:
            click.echo(text, nl=False)
        else:
            self.file.write_text(text, encoding="utf-8")


class OutputType(click.ParamType[Output]):
    """Reads FORMAT or FORMAT=FILE."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Read one output; says which formats there are where it names none."""
        if isinstance(value, Output):
            return value
        name, equals, file = str(value).partition("=")
        if name not in list(Format) or (equals and not file):
            self.fail(f"expected FORMAT or FORMAT=FILE with one of {', '.join(Format)}; got {value!r}", param, ctx)
        return Output(Format(name), Path(file) if file else None)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the formats."""
        return [CompletionItem(name) for name in Format if name.startswith(incomplete)]
