"""The outputs of a review: formats and files."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from webhook.cli import options
from webhook.cli.output import write_file


class Format(StrEnum):
    """The output formats of a review."""

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
    """One output: its format, and its file, or None for standard output."""

    format: Format
    file: Path | None = None

    @property
    def is_colored(self) -> bool:
        """Whether to use color: never in a file."""
        return self.file is None and options.is_colored()

    @property
    def width(self) -> int:
        """The width: that of standard output; without bound in a file."""
        return options.columns() if self.file is None else options.UNBOUNDED

    def write(self, text: str) -> None:
        """Write the text. Raises UnwrittenError."""
        if self.file is None:
            click.echo(text, nl=False)
        else:
            write_file(self.file, text)


class OutputType(click.ParamType[Output]):
    """Parses FORMAT or FORMAT=FILE."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Parse one output; an error lists the formats."""
        if isinstance(value, Output):
            return value
        name, equals, file = str(value).partition("=")
        if name not in list(Format) or (equals and not file):
            self.fail(f"expected FORMAT or FORMAT=FILE with one of {', '.join(Format)}; got {value!r}", param, ctx)
        return Output(Format(name), Path(file) if file else None)

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the formats."""
        return [CompletionItem(name) for name in Format if name.startswith(incomplete)]
