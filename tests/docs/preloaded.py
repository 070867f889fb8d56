"""Runs `fairgate` for a shell without importing it each time, which is most of what a short command does.

One process has imported everything. A stand-in for the program hands it arguments, folder, environment and open files;
it forks, and the fork is the command to its end. The stand-in passes on SIGINT and SIGTERM, and its own end by SIGKILL.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.popen import killed_on_failure
from webhook.cli import main as cli

ROOT = Path(__file__).parents[2]
LARGEST_REQUEST = 2**17
IMPORTED_LATE = ("webhook.cluster.api.credentials", "webhook.server.root", "webhook.evictor.root")
STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({path!r})
    request = {{"entry": {entry!r}, "arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    sys.exit((server.recv(1) or b"\\x01")[0])
"""


@contextmanager
def stand_ins(folder: Path) -> Iterator[Path]:
    """A folder with the programs `fairgate` and `kubectl-fairgate`, which work until the end of the block."""
    path = folder / "socket"
    command = [sys.executable, "-m", "tests.docs.preloaded", path]
    with killed_on_failure(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True)) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        programs = folder / "bin"
        programs.mkdir()
        for name, entry in (("fairgate", "main"), ("kubectl-fairgate", "plugin")):
            (programs / name).write_text(STAND_IN.format(python=sys.executable, path=str(path), entry=entry))
            (programs / name).chmod(0o755)
        yield programs
        process.communicate()  # its input ends, and so does it


@dataclass(frozen=True, slots=True)
class Command:
    """A fork that runs, and the connection to its stand-in."""

    pid: int
    end: int  # a file that becomes readable at its end
    connection: socket.socket

    def listen(self) -> None:
        """Pass on the signal that the stand-in got; one that is gone was killed."""
        os.kill(self.pid, (self.connection.recv(1) or bytes([signal.SIGKILL]))[0])

    def close(self) -> None:
        """Give the stand-in its exit status."""
        _, status = os.waitpid(self.pid, 0)
        with suppress(BrokenPipeError):
            self.connection.send(bytes([os.waitstatus_to_exitcode(status) % 256]))
        self.connection.close()
        os.close(self.end)


def serve(path: Path) -> None:
    """Fork for each request, until the input ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        for module in (*(place.partition(":")[0] for place in cli.COMMANDS.values()), *IMPORTED_LATE):
            importlib.import_module(module)
        gc.freeze()  # otherwise each fork would copy everything imported when its reference counts change
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
        running: list[Command] = []
        while True:
            heard = [each for command in running for each in (command.end, command.connection)]
            ready, _, _ = select.select([listener, sys.stdin, *heard], [], [])
            if sys.stdin in ready:
                break
            for command in [each for each in running if each.end in ready]:
                command.close()
                running.remove(command)
            for command in [each for each in running if each.connection in ready]:
                command.listen()
            if listener in ready:
                running.append(start(listener.accept()[0]))
        for command in running:
            os.kill(command.pid, signal.SIGKILL)


def start(connection: socket.socket) -> Command:
    """Fork for one request."""
    raw, files, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
    pid = os.fork()
    if pid == 0:
        become(json.loads(raw), files)
    for file in files:
        os.close(file)
    return Command(pid, os.pidfd_open(pid), connection)


def become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Run the requested command to its end."""
    status: object = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        random.seed()
        sys.argv = request["arguments"]
        sys.modules["__main__"].__package__ = None  # a script, which is called as its file is
        getattr(cli, request["entry"])()
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:  # what the interpreter does with it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
