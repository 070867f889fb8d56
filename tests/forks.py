"""Starts `python -m MODULE …` in processes of their own without importing again: imports take most of a short run.

One process imports what the modules need, once for each test worker, and forks for every start; the fork has arguments,
environment, folder, files and end of its own. What an interpreter does before it runs the module is not the subject of
those tests; `tests/ci/test_release.py` starts the installed command.
"""

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTS = ("webhook.cli.main", "webhook.cluster.api.credentials", "webhook.server.root", "tests.server.support.harness")
CAPABILITIES_VERSION = 0x20080522
READ_AND_WRITE_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class Fork:
    """A started process; has the methods of subprocess.Popen."""

    def __init__(self, server: "_Forks", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.005)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended: its number may belong to another process by then."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait(timeout=30)


class _Forks:
    """The process that forks, seen from a test."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.forks"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = Lock()

    def ask(self, request: Mapping[str, Any]) -> Any:
        with self._lock:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Let it end; it ends what it has started."""
        self._process.communicate()


@functools.cache
def _forks() -> _Forks:
    forks = _Forks()
    atexit.register(forks.close)
    return forks


def start(
    module: str,
    *arguments: object,
    out: Path,
    err: Path,
    stdin: Path = Path(os.devnull),
    folder: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    as_root: bool = True,
) -> Fork:
    """Run a module as `python -m` does; files may be devices. `as_root=False` lets permissions hold for root, too."""
    forks = _forks()
    request = {
        "module": module,
        "arguments": [*map(str, arguments)],
        "files": [*map(str, (stdin, out, err))],
        "folder": str(folder),
        "environment": dict(os.environ if environ is None else environ),
        "as_root": as_root,
    }
    return Fork(forks, forks.ask(request))


def run(
    module: str, *arguments: object, stdin: str = "", timeout: float = 60, as_root: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end."""
    with tempfile.TemporaryDirectory() as folder:
        given, out, err = (Path(folder) / name for name in ("in", "out", "err"))
        given.write_text(stdin)
        fork = start(module, *arguments, stdin=given, out=out, err=err, as_root=as_root)
        try:
            status = fork.wait(timeout)
        finally:
            fork.kill()
        return subprocess.CompletedProcess([*arguments], status, out.read_text(), err.read_text())


def _serve() -> None:
    """Fork for each request, until there are no more."""
    for module in IMPORTS:
        importlib.import_module(module)
    commands = importlib.import_module("webhook.cli.main").COMMANDS
    for place in commands.values():
        importlib.import_module(place.partition(":")[0])
    gc.freeze()  # otherwise each process would copy everything imported when its reference counts change
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests: they end what they have started
    running: set[int] = set()
    while request := sys.stdin.readline():
        sys.stdout.write(json.dumps(_answer(json.loads(request), running)) + "\n")
        sys.stdout.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _answer(request: dict[str, Any], running: set[int]) -> int | None:
    """Give the PID of a process that is started, or the exit status of one that has ended."""
    if pid := request.get("ended"):
        ended, status = os.waitpid(pid, os.WNOHANG)
        running.discard(ended)
        return os.waitstatus_to_exitcode(status) if ended else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    files = [os.open(path, flags if number else os.O_RDONLY) for number, path in enumerate(request["files"])]
    pid = os.fork()  # now the files exist: a reader of a log, or of a terminal, need not wait for the process
    if pid == 0:
        _become(request, files)
    for each in files:
        os.close(each)
    running.add(pid)
    return pid


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Run the requested module to its end."""
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _open_streams(os.environ.get("PYTHONIOENCODING", "utf-8"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not request["as_root"] and os.geteuid() == 0:
        _give_up_root()
    sys.argv = [request["module"], *request["arguments"]]
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        status: object = 0
    except SystemExit as ended:
        status = ended.code or 0
    if isinstance(status, int):
        sys.stdout.flush()
        os._exit(status)  # a normal exit would touch everything imported, and so copy it
    sys.exit(str(status))


def _open_streams(encoding: str) -> None:
    """As an interpreter does that starts."""
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115  the process ends with it
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _give_up_root() -> None:
    """Let permissions hold for this process, too; its files stay its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[0] &= ~READ_AND_WRITE_ALL
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    _serve()
