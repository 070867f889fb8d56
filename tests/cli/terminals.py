"""Runs commands on a pseudo terminal of a given size."""

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests import forks

SECONDS = 120
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Shown(NamedTuple):
    """What a terminal got, with its control sequences, and the exit status."""

    raw: str
    status: int

    @property
    def text(self) -> str:
        """The text without control sequences."""
        return _CONTROL.sub("", self.raw)


def on_a_terminal(
    *words: str | Path,
    columns: int = 200,
    rows: int = 40,
    until: Callable[[str], bool] | None = None,
    **environment: str,
) -> Shown:
    """Run a command on a terminal; with `until`, press Ctrl-C once what it got fulfils that."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", **environment}
    for name in {"COLUMNS", "LINES", "FORCE_COLOR"} - environment.keys():
        environ.pop(name, None)
    terminal = Path(os.ttyname(theirs))
    running = forks.start(
        "webhook", *words, stdin=terminal, out=terminal, err=terminal, folder=Path.cwd(), environ=environ
    )
    os.close(theirs)
    printed, pressed = b"", False
    try:
        while chunk := os.read(ours, 65_536):
            printed += chunk
            if until is not None and not pressed and until(printed.decode(errors="replace")):
                running.send_signal(signal.SIGINT)
                pressed = True
    except OSError:
        pass  # Linux: the other side closed the terminal
    os.close(ours)
    return Shown(printed.decode(), running.wait(timeout=SECONDS))
