"""Owns the processes and the folder of one test control plane, and outlives its owner.

Run as a script with nothing but the standard library. It reads one JSON request per line on stdin and answers each
with one JSON line on stdout. When stdin closes, because its owner is done, was interrupted or was killed with SIGKILL,
it kills what it started, newest first, removes the folder and ends. Should it be killed itself, Linux kills its
children (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Run in the child before exec: the kernel kills it when the supervisor dies."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and killed."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans() -> None:
    """Kill adopted processes until there are none; their own children come to us in turn."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.exists() and (orphans := children.read_text().split()):
        for orphan in map(int, orphans):
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


class Supervisor:
    """The processes by name, in the order of their start; a name can be started again after its process ended."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.processes: dict[str, subprocess.Popen] = {}

    def start(self, *, name: str, argv: list[str], env: dict[str, str], cwd: str) -> dict:
        """Start a process whose output goes to logs/<name>.log."""
        if self.is_running(name):
            return {"error": f"{name} is running already"}
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            try:
                process = subprocess.Popen(
                    argv,
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent,  # noqa: PLW1509  this process has one thread
                )
            except OSError as error:
                return {
                    "error": f"{name}: {argv[0]} cannot be run ({error.strerror}); remove it to have it built again"
                }
        self.processes.pop(name, None)  # the newest are killed first
        self.processes[name] = process
        return {"pid": process.pid}

    def signal(self, *, name: str, number: int) -> dict:
        """Send a signal to a process that still runs."""
        if not self.is_running(name):
            return {"error": f"{name} is not running"}
        self.processes[name].send_signal(number)
        return {}

    def status(self) -> dict:
        """Report the id of every process and, once it ended, its exit code."""
        return {name: {"pid": process.pid, "exit": process.poll()} for name, process in self.processes.items()}

    def is_running(self, name: str) -> bool:
        """Whether the named process was started and has not ended."""
        return name in self.processes and self.processes[name].poll() is None

    def close(self) -> None:
        """Kill everything, newest first (so the API server goes before etcd), and remove the folder."""
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()
        kill_orphans()
        shutil.rmtree(self.folder)


def stop_serving(_number: int, _frame: object) -> None:
    """Turn SIGTERM into an orderly end."""
    raise SystemExit(0)


def main() -> None:
    """Serve one owner until its pipe closes."""
    # Handlers, not SIG_IGN: exec resets a handler, and the children are to have default signals.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, stop_serving)
    adopt_orphans()
    supervisor = Supervisor(Path(tempfile.mkdtemp(prefix="fairgate-control-plane-")))
    try:
        for name in ("logs", "tmp"):
            (supervisor.folder / name).mkdir()
        stderr = os.open(supervisor.folder / "logs" / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stderr, 2)  # the owner's stderr must not be held open after its death
        answer({"folder": str(supervisor.folder)})
        operations = {"start": supervisor.start, "signal": supervisor.signal, "status": supervisor.status}
        for line in sys.stdin:
            request = json.loads(line)
            answer(operations[request.pop("operation")](**request))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to flush to
    finally:
        supervisor.close()


def answer(message: dict) -> None:
    """Write one line."""
    print(json.dumps(message), flush=True)  # noqa: T201  stdout is the protocol


if __name__ == "__main__":
    main()
