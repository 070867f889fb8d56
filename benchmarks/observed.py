"""What it costs a decision to be observed: a server on a real cluster, recording a history, and beside ten open pages.

Two servers watch the same cluster, in which pods come and go; a third process leads, so that both do the same:
`without`    decides;
`recording`  decides with `--history`;
`pages`      the same server, while `fairgate page` runs beside it with ten open pages that follow every change.
Rounds alternate, in changing order. While a round is not theirs, the page and its viewers are stopped (SIGSTOP). A
client in a process of its own posts reviews at a fixed rate, as an API server would; a review that waits for its turn
counts from when it was due. Prints a Markdown table: the p99 seen by the client, the p99 of the decision itself as the
server logs it, and the server's processor time; medians of the rounds, with the range, and the ratio to `without`,
round by round; and the processor time of the page and its viewers. On a machine with few cores the page takes turns
with the servers; `--pin` gives these and the client a core of their own, as if on another node: what is left is what a
server does more. Run it from the repository's root: `python benchmarks/observed.py --nodes 200 --rounds 12`.

The figures of docs/benchmarks.md are those of
    python benchmarks/observed.py --nodes 200 --rounds 8 --seconds 3 --pin
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from observing.roles import VIEWS, run_client, run_pods, run_viewers
from serve import cpu_nanoseconds, on_core
from serving.inputs import review_body

from tests.chaos.replicas import Replicas, replicas
from tests.control_plane import build
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import free_ports
from tests.control_plane.versions import CONTROL_PLANE
from tests.control_plane.workbench import make_nodes, wait_for
from tests.scenarios import serving
from tests.scenarios.serving import FAIRGATE, ROOT

WITHOUT, RECORDING, PAGES = VARIANTS = ("without", "recording", "pages")
CATCH_UP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that watches the cluster, and is called by the benchmark alone."""

    name: str
    pid: int
    url: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One round; microseconds."""

    p50_us: float
    p99_us: float
    decision_p99_us: float
    cpu_us: float


def start_server(running: Replicas, name: str, *flags: str) -> Server:
    """Start a server with the policy and the certificates of the replicas, and wait until it is ready."""
    cluster, [port] = running.cluster, free_ports(1)
    command = [
        *(*FAIRGATE, "serve", "--policy", running.policy, "--kubeconfig", cluster.kubeconfig),
        *("--listen", f"127.0.0.1:{port}", "--certs", running.folder / "certs", "--drain-seconds", "0", *flags),
    ]
    pid = cluster.processes.start(name, command, cwd=ROOT)
    url = f"https://127.0.0.1:{port}"
    wait_for(cluster, lambda: '"ready":true' in serving.get(f"{url}/readyz", ca=running.ca), what=f"{name} ready")
    return Server(name, pid, url)


@contextmanager
def role(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a role of this file until the end of the block."""
    command = [sys.executable, __file__, "--role", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@dataclass(slots=True)
class Seen:
    """How many events the viewers have got."""

    events: int = 0

    def read(self, lines: TextIO) -> None:
        """Count lines until they end."""
        for _ in lines:
            self.events += 1


@dataclass(frozen=True, slots=True)
class OpenPages:
    """The page and its viewers, by process id, and what these have got."""

    pids: list[int]
    seen: Seen


@contextmanager
def open_pages(cluster: ControlPlane) -> Iterator[OpenPages]:
    """Run `fairgate page` and its viewers; yields once every page is open."""
    command = [*FAIRGATE, "page", "--no-browser", "--kubeconfig", str(cluster.kubeconfig)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as page:
        try:
            assert page.stdout is not None
            url = re.search(r"http\S+", page.stdout.readline())
            if url is None:
                sys.exit("the page did not start")
            with role("viewers", "--url", url[0]) as viewers:
                assert viewers.stdout is not None
                opened = 0
                while opened < len(VIEWS):
                    line = viewers.stdout.readline()
                    if not line:
                        sys.exit("the pages were not opened")
                    opened += line.startswith("OPEN")
                seen = Seen()
                threading.Thread(target=seen.read, args=(viewers.stdout,), daemon=True).start()
                yield OpenPages([page.pid, viewers.pid], seen)
        finally:
            page.send_signal(signal.SIGCONT)
            page.terminate()


def measure(cluster: ControlPlane, server: Server, body: Path, options: argparse.Namespace) -> Reading:
    """Load a server for one round."""
    log = cluster.processes.log_path(server.name)
    offset, cpu = log.stat().st_size, cpu_nanoseconds(server.pid)
    words = ("--url", f"{server.url}/mutate", "--body", str(body), "--seconds", str(options.seconds))
    more = ("--per-second", str(options.per_second), "--connections", str(options.connections))
    with on_core(options.core), role("client", *words, *more) as client:
        printed, _ = client.communicate(timeout=options.seconds + 30)
    cpu = cpu_nanoseconds(server.pid) - cpu
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("RESULT")).removeprefix("RESULT"))
    taken = found["taken_us"]
    if len(taken) < found["asked"]:
        sys.exit(f"{server.name} answered {len(taken)} of {found['asked']} reviews")
    time.sleep(0.5)  # log lines are written in batches
    with log.open() as file:
        file.seek(offset)
        lines = [json.loads(line) for line in file if '"event":"decision"' in line.replace(" ", "")]
    decided = [1000 * float(line["duration_ms"]) for line in lines if line.get("operation") == "CREATE"]
    return Reading(_p(taken, 50), _p(taken, 99), _p(decided, 99), cpu / len(taken) / 1000)


def _p(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def pin(pids: Iterable[int], core: int) -> None:
    """Keep processes on a core."""
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {core})


def compare(cluster: ControlPlane, running: Replicas, options: argparse.Namespace) -> dict[str, list[Reading]]:
    """Alternate between the variants."""
    body = running.folder / "review.json"
    namespace = "other" if options.refused else running.teams[0].namespace
    body.write_bytes(review_body(namespace))
    without = start_server(running, "observed-without")
    recording = start_server(running, "observed-recording", "--history", str(running.folder / "history.db"))
    if options.pin:
        options.core, others = sorted(os.sched_getaffinity(0))[:2]
        os.sched_setaffinity(0, {others})
        pin(set(cluster.processes.pids().values()), others)
        pin([without.pid, recording.pid], options.core)
    namespaces = ",".join(team.namespace for team in running.teams)
    ca = running.folder / "api-ca.crt"
    ca.write_bytes(cluster.authority.pem)
    access = ("--url", cluster.server, "--ca", str(ca), "--namespaces", namespaces)
    readings: dict[str, list[Reading]] = {name: [] for name in VARIANTS}
    rate = ("--per-second", str(options.pods_per_second))
    with role("pods", *access, *rate, "--token", cluster.token), open_pages(cluster) as pages:
        for turn in range(-1, options.rounds):  # the first warms up
            for name in VARIANTS[:: -1 if turn % 2 else 1]:
                for pid in pages.pids:
                    os.kill(pid, signal.SIGCONT if name == PAGES else signal.SIGSTOP)
                time.sleep(CATCH_UP_SECONDS)
                before, events = [cpu_nanoseconds(pid) for pid in pages.pids], pages.seen.events
                begun = time.perf_counter()
                found = measure(cluster, without if name == WITHOUT else recording, body, options)
                took = time.perf_counter() - begun
                spent = [cpu_nanoseconds(pid) - cpu for pid, cpu in zip(pages.pids, before, strict=True)]
                if turn >= 0:
                    readings[name].append(found)
                if turn >= 0 and name == PAGES:
                    shares = [each / took / 1e9 for each in spent]
                    rate = (pages.seen.events - events) / took
                    print(f"- {rate:.0f} events/s; of a core: the page {shares[0]:.0%}, its viewers {shares[1]:.0%}")
    return readings


def report(readings: dict[str, list[Reading]], options: argparse.Namespace) -> None:
    """Print the table."""
    print(f"- command: `python {' '.join(sys.argv)}`; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(
        f"- {options.nodes} nodes, {options.pods_per_second:g} pods created and deleted a second; "
        f"{options.per_second:g} reviews a second over {options.connections} connections, "
        f"{options.rounds} rounds of {options.seconds:g} s\n"
    )
    print("| variant | p50 us | p99 us | p99 to without | decision p99 us | to without | CPU us/review |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, rounds in readings.items():
        pairs = list(zip(rounds, readings[WITHOUT], strict=True))
        cells = (
            _spread([each.p50_us for each in rounds]),
            _spread([each.p99_us for each in rounds]),
            _spread([each.p99_us / base.p99_us for each, base in pairs], digits=2),
            _spread([each.decision_p99_us for each in rounds]),
            _spread([each.decision_p99_us / base.decision_p99_us for each, base in pairs], digits=2),
            _spread([each.cpu_us for each in rounds]),
        )
        print(f"| {name} | {' | '.join(cells)} |")


def _spread(values: Sequence[float], *, digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def run_role(options: argparse.Namespace) -> None:
    match options.role:
        case "client":
            load = {"connections": options.connections, "seconds": options.seconds, "per_second": options.per_second}
            asyncio.run(run_client(options.url, Path(options.body).read_bytes(), **load))
        case "viewers":
            asyncio.run(run_viewers(options.url))
        case _:
            names = options.namespaces.split(",")
            asyncio.run(run_pods(options.url, options.token, options.ca, names, per_second=options.per_second))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--per-second", type=float, default=200.0, help="reviews a second")
    parser.add_argument("--pods-per-second", type=float, default=5.0, help="pods created and deleted a second")
    parser.add_argument("--pin", action="store_true", help="give the servers and the client a core of their own")
    parser.set_defaults(core=None)
    parser.add_argument("--refused", action="store_true", help="post a pod that is refused, which a history counts")
    for internal in ("--role", "--url", "--body", "--ca", "--namespaces", "--token"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        run_role(options)
        return
    build.ensure(CONTROL_PLANE)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        make_nodes(cluster, options.nodes, gpus=8, timeout=600)
        running = stack.enter_context(replicas(cluster, 1, teams=2, limit=1000))
        report(compare(cluster, running, options), options)


if __name__ == "__main__":
    main()
