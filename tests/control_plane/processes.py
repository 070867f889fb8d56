"""The owner's side of the supervisor: start, signal and watch processes that cannot outlive the tests."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

POLL_SECONDS = 0.05
CLOSE_SECONDS = 30
LOG_TAIL_LINES = 30
PORTS = Path("/tmp/fairgate-test-ports")


class ComponentError(Exception):
    """A process of the control plane did not start, died or did not get ready; the text ends with its log."""


class Processes:
    """Processes and a folder that are gone when this object is closed or its Python process ends, however it ends."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("supervisor.py")
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the tests only; the supervisor sees its pipe close
        )
        self.folder = Path(self._read()["folder"])
        self._asking = threading.Lock()

    def start(
        self, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> int:
        """Start a process in a small environment of its own and return its process id."""
        return self._ask(
            "start",
            name=name,
            argv=[str(part) for part in argv],
            env=self.environment() | dict(env or {}),
            cwd=str(cwd or self.folder),
        )["pid"]

    def environment(self) -> dict[str, str]:
        """Return the environment of a process: of the developer's only PATH, and no proxy for loopback addresses."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "KUBECACHEDIR": str(self.folder / "tmp" / "kubectl"),
        }

    def send_signal(self, name: str, number: int) -> None:
        """Send a signal to a running process."""
        self._ask("signal", name=name, number=int(number))

    def stop(self, name: str, number: int = signal.SIGTERM, *, timeout: float = 30) -> None:
        """Send a signal and wait for the end; a process that is still there after `timeout` seconds is killed."""
        self.send_signal(name, number)
        try:
            self._wait_for_end(name, timeout=timeout)
        except TimeoutError:
            self.send_signal(name, signal.SIGKILL)
            self._wait_for_end(name, timeout=CLOSE_SECONDS)

    def end(self, name: str, number: int = signal.SIGTERM, *, timeout: float = 10) -> None:
        """As `stop`, for a process that may have ended, or was never started."""
        if self.is_running(name):
            self.stop(name, number, timeout=timeout)

    def is_running(self, name: str) -> bool:
        """Whether the process was started and has not ended (a stopped one, as by SIGSTOP, is running)."""
        state = self._ask("status").get(name)
        return state is not None and state["exit"] is None

    def pids(self) -> dict[str, int]:
        """The ids of the running processes by name."""
        return {name: state["pid"] for name, state in self._ask("status").items() if state["exit"] is None}

    def check_running(self, name: str) -> None:
        """Raise a ComponentError with the end of its log when the process is not running."""
        state = self._ask("status").get(name)
        if state is None or state["exit"] is not None:
            raise ComponentError(self.describe(name, "was never started" if state is None else _ending(state["exit"])))

    def describe(self, name: str, what: str) -> str:
        """One sentence on a process and the end of its log."""
        return f"{name} {what}. The end of its log:\n{self.log(name) or '(empty)'}"

    def log(self, name: str, *, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of what the process wrote."""
        with contextlib.suppress(FileNotFoundError):
            text = self.log_path(name).read_text(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return ""

    def logged(self, name: str, event: str = "") -> list[dict]:
        """The lines of JSON that the process wrote, in order; on request only those of one event."""
        path = self.log_path(name)
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if event in ("", line["event"])]

    def log_path(self, name: str) -> Path:
        """The file with all that the process wrote, restarts included."""
        return self.folder / "logs" / f"{name}.log"

    def close(self) -> None:
        """Kill every process, remove the folder and wait until that is done; safe to call twice."""
        if self._supervisor.stdin and not self._supervisor.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._supervisor.stdin.close()
            try:
                self._supervisor.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            self._supervisor.stdout.close()

    def _wait_for_end(self, name: str, *, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.is_running(name):
            if time.monotonic() > deadline:
                raise TimeoutError(name)
            time.sleep(POLL_SECONDS)

    def _ask(self, operation: str, **details: object) -> dict:
        with self._asking:
            try:
                self._supervisor.stdin.write(json.dumps({"operation": operation, **details}) + "\n")
                self._supervisor.stdin.flush()
            except (BrokenPipeError, ValueError) as error:
                raise ComponentError("the supervisor of the control plane is gone") from error
            reply = self._read()
        if "error" in reply:
            raise ComponentError(reply["error"])
        return reply

    def _read(self) -> dict:
        line = self._supervisor.stdout.readline()
        if not line:
            raise ComponentError("the supervisor of the control plane is gone")
        return json.loads(line)


def _ending(exit_code: int) -> str:
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def free_ports(count: int) -> list[int]:
    """Free loopback ports, outside of the range that Linux uses for outgoing connections.

    No other process that takes its ports here gets them as long as this one runs, however long their server takes to
    listen: a file for each port names the process that has it.
    """
    ports: list[int] = []
    while len(ports) < count:
        candidate = random.randint(20_000, 32_000)
        with socket.socket() as holder, contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", candidate))
            if _is_claimed(candidate):
                ports.append(candidate)
    return ports


def _is_claimed(port: int) -> bool:
    """Write this process's id into the port's file, unless the file has the id of another one that runs."""
    folder = PORTS / str(os.getuid())
    folder.mkdir(parents=True, exist_ok=True)
    file, own = folder / str(port), str(os.getpid())
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        owner = file.read_text()
        if not owner or Path("/proc", owner).exists():
            return False
    file.write_text(own)
    return True
