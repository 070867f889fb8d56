"""Prometheus and promtool: scrapes what tests run, evaluates rules, and answers queries."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.versions import PROMETHEUS
from tests.control_plane.waiting import wait_for

TIMEOUT_SECONDS = 60


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """Run promtool and return its output; its error fails the test with that output."""
    command = [binary_path(PROMETHEUS, "promtool"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, f"promtool {arguments[0]}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def query(self, expr: str) -> list[dict]:
        """The series that an expression gives now; an expression that cannot be evaluated is an AssertionError."""
        try:
            return self._get("/api/v1/query", query=expr)["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {json.load(error)['error']}") from error

    def selectors(self, expr: str) -> list[str]:
        """What an expression selects, each with its matchers but without its range."""
        return list(_selectors(self._get("/api/v1/parse_query", query=expr)))

    def rules(self) -> list[dict]:
        """All rules with their health and state."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def targets(self) -> dict[str, str]:
        """The health of each scraped job, with the last error."""
        active = self._get("/api/v1/targets")["activeTargets"]
        return {target["labels"]["job"]: target["lastError"] or target["health"] for target in active}

    def _get(self, path: str, **parameters: str) -> dict:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            return json.load(answer)["data"]


def _selectors(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _selectors(each)
    elif isinstance(node, dict):
        if node.get("type") in ("vectorSelector", "matrixSelector"):
            matchers = [each for each in node["matchers"] if each["name"] != "__name__"]
            inside = ",".join(sorted(f"{each['name']}{each['type']}{json.dumps(each['value'])}" for each in matchers))
            yield f"{node['name']}{{{inside}}}" if inside else node["name"]
        for each in node.values():
            yield from _selectors(each)


@contextlib.contextmanager
def prometheus(
    cluster: ControlPlane, scrapes: Sequence[Mapping[str, object]], *, rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """Run Prometheus with these scrape configurations, every two seconds, until the end of the block."""
    (port,) = free_ports(1)
    folder = Path(tempfile.mkdtemp(prefix="prometheus-", dir=cluster.folder))  # not the series of an earlier test
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": list(scrapes),
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = (
        binary_path(PROMETHEUS, "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    cluster.processes.start("prometheus", command, cwd=folder)
    try:
        running = Prometheus(f"http://127.0.0.1:{port}")

        def is_scraping() -> bool:
            cluster.processes.check_running("prometheus")
            return set(running.targets().values()) == {"up"}

        wait_for(
            is_scraping,
            what="Prometheus scrapes everything",
            timeout=TIMEOUT_SECONDS,
            describe=lambda: cluster.processes.log("prometheus"),
        )
        yield running
    finally:
        cluster.processes.end("prometheus")
