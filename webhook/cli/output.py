"""What a command writes, and how it ends where it cannot: on a full disk, into a closed pipe, by Ctrl-C."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

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
    from webhook.cli.terminal import print_error  # noqa: PLC0415 - slow to import, and --help needs none of it

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
