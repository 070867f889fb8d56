"""What a kubelet is to containers: starts processes, and starts those again that ended, until they are to stay down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.control_plane.processes import Processes
from tests.scenarios.serving import ROOT

LOOK_SECONDS = 0.25


class Kubelet:
    """Keeps processes running, each by its command line. `restarts` counts by name how often one was started again."""

    def __init__(self, processes: Processes, commands: Mapping[str, Sequence[object]]) -> None:
        self.commands = commands
        self.restarts: Counter[str] = Counter()
        self._processes = processes
        self._down: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the processes until the end of the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self._keep, args=(stop,))
        self._start_missing()
        self.restarts.clear()
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            for name in self.commands:
                self._processes.end(name)

    @contextmanager
    def down(self, *names: str) -> Iterator[None]:
        """Keep processes down, once they have ended, until the end of the block."""
        with self._lock:
            self._down.update(names)
        try:
            yield
        finally:
            with self._lock:
                self._down.difference_update(names)

    def _keep(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self._start_missing()

    def _start_missing(self) -> None:
        with self._lock:
            for name in self.commands.keys() - self._down - self._processes.pids().keys():
                self._processes.start(name, self.commands[name], cwd=ROOT)
                self.restarts[name] += 1
