"""Output of commands: waits, JSON and YAML, how a command ends."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from webhook import yaml_text
from webhook.cli.options import Layout
from webhook.core.model.amounts import escaped, span


def wait_text(seconds: float) -> str:
    """Return a wait for a column."""
    return "0" if seconds < 1 else span(seconds)


# What a command writes, and how it ends where it cannot: on a full disk, into a closed pipe, by Ctrl-C.


INTERRUPTED: Final = 130
"""The status of a shell for a command that SIGINT ended; others that read a status take it for no answer."""

PIPE_CLOSED: Final = 141
"""The same for SIGPIPE."""

UNWRITTEN: Final = 2
_OF_A_WRITE: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


class UnwrittenError(click.ClickException):
    """A file that could not be written; the command ends with its reason."""

    exit_code = UNWRITTEN

    def show(self, file: object = None) -> None:  # noqa: ARG002 - of click
        """Print the reason as other problems are printed."""
        _print(self.message)


def write_file(path: Path, text: str) -> None:
    """Write a file. Raises UnwrittenError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnwrittenError(f"{path}: cannot be written: {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they exist. Raises UnwrittenError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwrittenError(f"{path}: cannot be written: {error.strerror or error}") from error


def is_of_output(error: OSError) -> bool:
    """Whether an error is that standard output or standard error cannot be written."""
    return error.filename is None and error.errno in _OF_A_WRITE


@contextmanager
def ending_well() -> Iterator[None]:
    """End the process in one line, and with a status that means no answer, where it is stopped or cannot write."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # the terminal has shown ^C
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _close_output()
        sys.exit(PIPE_CLOSED)
    except OSError as error:
        if not is_of_output(error):
            raise
        _close_output()
        with suppress(OSError):
            _print(f"the output cannot be written: {error.strerror}")
        sys.exit(UNWRITTEN)


def _print(problem: str) -> None:
    from webhook.cli.grid import print_error  # noqa: PLC0415 - slow to import, and --help needs none of it

    print_error(problem)


def _close_output() -> None:
    """Send what is still buffered to nowhere: the interpreter would report at its end that it cannot write it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
            continue
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())


# Serializes data as JSON or YAML.


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def to_json(data: object) -> str:
    """Return data as JSON, indented by two spaces; what a terminal would not show as it is, is escaped."""
    return escaped(msgspec.json.format(msgspec.json.encode(data), indent=2).decode(), escape=_json_escape) + "\n"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))


def to_yaml(data: object) -> str:
    """Return data as YAML."""
    return yaml_text.to_yaml(msgspec.to_builtins(data), width=120)


def to_data(data: object, layout: Layout) -> str:
    """Return data in one of the layouts for programs."""
    return to_yaml(data) if layout is Layout.YAML else to_json(data)


def schema_of(data: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, list[T] included
    """Return the JSON Schema (draft 2020-12) of a type."""
    return {"$schema": DIALECT, **msgspec.json.schema(data)}
