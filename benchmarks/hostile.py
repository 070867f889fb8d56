"""How long other clients wait for a server while a tenant sends it the largest and oddest pods.

`fairgate serve` runs as a separate process on a world of many nodes; one client posts every shape at every size in
turn, a neighbor posts ordinary reviews at the same time. The table has, for each shape, the neighbor's longest wait and
the server's processor time for one request; then the same for objects that make pods and for claims
(`hostile_workloads.py`), and the memory growth after 1,000 different hostile requests. Waits include other load of the
machine: compare them with those without an attack, in the first line. Then connections are held open to the webhook,
the evictor and the page (`hostile_connections.py`).

    python -m benchmarks.hostile --nodes 1000

The figures of docs/benchmarks.md are those of
    python -m benchmarks.hostile --nodes N
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Final

from benchmarks import hostile_connections, hostile_workloads
from benchmarks.serving.inputs import policy, review_body, world
from tests.attacks.shapes import MIB, pods, review, salted

ROOT: Final = Path(__file__).parents[1]
SIZES: Final = {"4 KiB": 4096, "60 KiB": 60 * 1024, "1 MiB": MIB, "3 MiB": 3 * MIB}
_HEADERS: Final = {"Content-Type": "application/json"}


@contextmanager
def serving(nodes: int) -> Iterator[tuple[str, int, int]]:
    """Start a server; return its host, port and process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy").mkdir()
        (folder / "policy" / "policy.yaml").write_text(json.dumps(policy(16 * nodes)))
        (folder / "world.yaml").write_text(json.dumps(world(nodes, 10)))
        arguments = ["serve", "--policy", "policy", "--world", "world.yaml", "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "webhook", *arguments, "--certs", "certs", "--drain-seconds", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        try:
            yield "127.0.0.1", port_of(folder / "log", process), process.pid
        finally:
            process.terminate()
            process.wait()


def port_of(log: Path, process: "subprocess.Popen[bytes]") -> int:
    """Return the port that a server listens on, once its log names it."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"event":"listening"' in line and line.endswith("}"):
                return int(json.loads(line)["url"].rpartition(":")[2])
        time.sleep(0.1)
    sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")


class Caller:
    """A keep-alive connection."""

    def __init__(self, host: str, port: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(host, port, context=context, timeout=600)

    def post(self, body: bytes, path: str = "/mutate") -> float:
        """Post a review; return the seconds until its answer."""
        before = time.perf_counter()
        self._connection.request("POST", f"{path}?timeout=30s", body=body, headers=_HEADERS)
        self._connection.getresponse().read()
        return time.perf_counter() - before


class Neighbor:
    """Posts ordinary reviews from a separate process, so that it waits only for the server, until stopped."""

    def __init__(self, host: str, port: int) -> None:
        self._longest = multiprocessing.Value("d", 0.0)
        self._process = multiprocessing.Process(target=_post_always, args=(host, port, self._longest), daemon=True)
        self._process.start()

    def take(self) -> float:
        """Return the longest wait since the last call, in seconds."""
        with self._longest.get_lock():
            longest, self._longest.value = self._longest.value, 0.0
        return longest

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def _post_always(host: str, port: int, longest: "Synchronized[float]") -> None:
    caller, body = Caller(host, port), review_body()
    while True:
        waited = caller.post(body)
        with longest.get_lock():
            longest.value = max(longest.value, waited)
        time.sleep(0.002)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--worst", type=int, default=8, help="shapes to show of each size")
    options = parser.parse_args()
    with serving(options.nodes) as (host, port, pid):
        neighbor, attacker = Neighbor(host, port), Caller(host, port)
        time.sleep(2)
        neighbor.take()
        time.sleep(3)
        print(f"{options.nodes:,} nodes; without an attack the neighbor waits {1000 * neighbor.take():.1f} ms at most")
        print(
            "\n| size | shape | neighbor waits at most, ms | server's processor time, ms |\n| --- | --- | --- | --- |"
        )
        for size, number in SIZES.items():
            rows = []
            for name, shape in pods(number):
                body = review(shape)
                neighbor.take()
                before = cpu_seconds(pid)
                for path in ("/mutate", "/validate", "/mutate"):
                    attacker.post(body, path)
                rows.append((1000 * neighbor.take(), name, 1000 * (cpu_seconds(pid) - before) / 3))
            for waited, name, cpu in sorted(rows, reverse=True)[: options.worst]:
                print(f"| {size} | {name} | {waited:.1f} | {cpu:.0f} |", flush=True)
        hostile_workloads.measure(attacker, neighbor, pid, cpu_seconds=cpu_seconds)
        draw = random.Random(1)
        bodies = [review(shape) for number in (1000, 4000, 15_000, 60_000) for _, shape in pods(number)]
        before = memory_mib(pid)
        for number in range(1000):
            attacker.post(salted(draw.choice(bodies), number))
        print(f"\n1,000 different requests: {memory_mib(pid) - before:+.1f} MiB resident")
        neighbor.stop()
    hostile_connections.measure()


if __name__ == "__main__":
    main()
