"""Fairgate as users run it: the real command in its own process, called over verified TLS.

Only documented command lines, HTTP paths and keys are used here; nothing is imported from webhook.
"""

import http.client
import json
import re
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import forks

JSON = {"Content-Type": "application/json"}
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        assert self.headers["content-type"].startswith("application/json"), self
        return json.loads(self.text)


@dataclass
class Server:
    """A running `fairgate serve`."""

    folder: Path
    url: str
    process: forks.Fork
    _connection: http.client.HTTPSConnection | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def ca(self) -> Path:
        return self.folder / "certs" / "ca.crt"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        """Send a request on this server's connection, or on a new one if it was closed."""
        if self._connection is None:
            self._connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls(), timeout=90)
        try:
            self._connection.request(method, path, body=body, headers=headers or {})
            answer = self._connection.getresponse()
            received = {name.lower(): value for name, value in answer.getheaders()}
            reply = Reply(answer.status, received, answer.read().decode())
        except BaseException:
            self.hang_up()
            raise
        if answer.will_close:
            self.hang_up()
        return reply

    def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        """POST a body as JSON, unless headers say otherwise."""
        return self.ask("POST", path, body, JSON if headers is None else headers)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def log(self) -> list[dict[str, Any]]:
        """Read all lines of its log so far."""
        return [json.loads(line) for line in (self.folder / "log").read_text().split("\n") if line]

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log() if line["event"] == event]

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Read one metric: labels and value of each sample."""
        found = []
        for line in self.ask("GET", "/metrics").text.splitlines():
            sample = _SAMPLE.match(line)
            if sample and sample["name"] == name:
                found.append((dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"] or "")), float(sample["value"])))
        return found

    def charged(self, team: str, tier: str | None = None) -> float:
        """How many GPUs a team has on its ledger."""
        return sum(
            value
            for labels, value in self.samples("fairgate_gpus_charged")
            if labels["team"] == team and tier in (None, labels["tier"])
        )

    def all_charged(self) -> dict[tuple[str, str], float]:
        """The whole ledger, without zeros."""
        samples = self.samples("fairgate_gpus_charged")
        return {(labels["team"], labels["tier"]): value for labels, value in samples if value}

    def ready(self) -> dict[str, Any]:
        reply = self.ask("GET", "/readyz")
        assert reply.status == (200 if reply.json["ready"] else 503)
        return reply.json

    def wait_until(self, holds: Callable[[], object], *, seconds: float = 30.0) -> None:
        """Wait until a condition holds; fails after so many seconds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.03)


@contextmanager
def serving(
    folder: Path, *, policy: dict[str, Any] | Path, world: Sequence[dict[str, Any]], more: Sequence[str] = ()
) -> Iterator[Server]:
    """Serve from a folder until the end of the block. The server must stop cleanly, without a traceback in its log."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(policy, dict):
        write_policy(folder / "policy", policy)
        policy = folder / "policy"
    (folder / "world.yaml").write_text(as_kubectl_prints(world))
    arguments = ["serve", "--policy", policy, "--world", folder / "world.yaml", "--listen", "127.0.0.1:0"]
    arguments += ["--certs", folder / "certs", "--drain-seconds", "0", *more]
    process = forks.start("webhook", *arguments, out=folder / "out", err=folder / "log")
    try:
        server = Server(folder, _listening(folder, process), process)
        yield server
        server.hang_up()
        assert process.poll() is None, "the server exited"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=90) == 0
    finally:
        process.kill()
    assert (folder / "out").read_text() == ""
    assert "Traceback" not in (folder / "log").read_text()
    assert not server.lines("bug")


def _listening(folder: Path, process: forks.Fork) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        for line in (folder / "log").read_text().splitlines(keepends=True):
            if line.endswith("\n") and '"event":"listening"' in line:
                url: str = json.loads(line)["url"]
                return url
        time.sleep(0.02)
    raise AssertionError(f"it does not serve (exit status {process.poll()}): {(folder / 'log').read_text()}")


def as_kubectl_prints(objects: Sequence[dict[str, Any]]) -> str:
    """Write objects as `kubectl get nodes,pods -A -o yaml` does."""
    listed = {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}
    return yaml.safe_dump(listed, default_flow_style=False)


def policy_text(sections: dict[str, Any]) -> str:
    """Write a policy file."""
    head = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy"}
    return yaml.safe_dump(head | sections, sort_keys=False)


def write_policy(folder: Path, sections: dict[str, Any]) -> None:
    """Write a policy folder of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.yaml").write_text(policy_text(sections))
