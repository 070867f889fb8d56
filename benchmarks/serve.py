"""Requests per second and latency of `fairgate serve` over TLS keep-alive, next to a bare handler in the same run.

Three servers are up at once on one core, the client on another; rounds are interleaved in alternating order:
`bare`     aiohttp + uvloop, reads the body and gives a fixed answer;
`shell`    Fairgate's HTTPS shell (checks, log line, metrics) around a fixed answer;
`fairgate` the whole `fairgate serve`, deciding over a world file;
`history`  the same with `--history`, if --with-history is given.
Prints a Markdown table. Run it from the repository's root: `python benchmarks/serve.py`.

The figures of docs/benchmarks.md are those of
    python benchmarks/serve.py --rounds 4 --seconds 3 --nodes 5000
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import uvloop
from serving.inputs import policy, review_body, world
from serving.roles import PATH, run_bare, run_client, run_shell

from certs.serving import CertFolder

ROOT = Path(__file__).resolve().parent.parent
WRK_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = assert(io.open("%s", "rb"))
wrk.body = file:read("*a")
file:close()
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('RESULT {"requests": %%d, "seconds": %%f, "p50_us": %%d, "p99_us": %%d, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one round against one server."""

    per_second: float
    p50_us: float
    p99_us: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test."""

    name: str
    pid: int
    url: str


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Start processes on one core: they inherit the affinity of their parent at that moment."""
    everywhere = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


@contextmanager
def started(name: str, arguments: list[str], *, folder: Path, core: int | None) -> Iterator[Server]:
    """Run a server on its core until the block ends; its log goes to a file, as a node's log driver does it."""
    log = folder / f"{name}.log"
    with log.open("wb") as sink, on_core(core):
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=sink, stderr=sink)
    try:
        yield Server(name=name, pid=process.pid, url=_url_from(log, process))
    finally:
        process.terminate()
        process.wait(timeout=60)


def _url_from(log: Path, process: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and "url" in (fields := json.loads(line)):
                return str(fields["url"])
        time.sleep(0.05)
    sys.exit(f"{log.stem} did not start:\n{log.read_text()[-2000:]}")


def check(server: Server, body: bytes, certs: Path, *, is_refused: bool) -> None:
    """Check that a server allows the review, or refuses it if so wished, before it is measured."""
    request = urllib.request.Request(server.url + PATH, data=body, headers={"Content-Type": "application/json"})
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        response = json.load(answer)["response"]
    is_admitted = bool(response["allowed"] and response.get("patch"))
    if is_admitted == is_refused and server.name not in ("bare", "shell"):
        sys.exit(f"{server.name} does not decide on the benchmark's pod as it should: {response}")


def cpu_nanoseconds(pid: int) -> int:
    """Return the processor time of all threads of a process."""
    return sum(int(t.read_text().split()[0]) for t in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def measure(server: Server, client: list[str], *, connections: int, seconds: float, core: int | None) -> Reading:
    """Load one server for one round."""
    command = [part.format(connections=connections, seconds=round(seconds), url=server.url + PATH) for part in client]
    before = cpu_nanoseconds(server.pid)
    with on_core(core):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu = cpu_nanoseconds(server.pid) - before
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    if result["errors"] or not result["requests"]:
        sys.exit(f"{server.name} at {connections} connections failed:\n{done.stdout}")
    return Reading(
        per_second=result["requests"] / result["seconds"],
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
        cpu_us=cpu / result["requests"] / 1000,
    )


def report(readings: dict[tuple[int, str], list[Reading]], *, client: str, options: argparse.Namespace) -> None:
    """Print the results and the setup."""
    print(f"- command: `{' '.join(['python', *sys.argv])}`")
    print(f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load average at the end: {os.getloadavg()[0]:.1f}")
    print(f"- machine: {_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}")
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "msgspec"))
    print(f"- Python {platform.python_version()}, {packages}, {ssl.OPENSSL_VERSION}")
    print(
        f"- client: {client}; {options.rounds} rounds of {options.seconds:g} s; medians; spread = (max - min) / median"
    )
    print(f"- world: {options.nodes} nodes with {options.pods_per_node} pods each; body {len(review_body())} bytes\n")
    print("| connections | server | req/s | spread | rate to bare | p50 us | p99 us | CPU us/request |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (connections, name), rounds in readings.items():
        rates = [reading.per_second for reading in rounds]
        bare = readings[connections, "bare"]
        ratio = statistics.median(r.per_second / b.per_second for r, b in zip(rounds, bare, strict=True))
        middle = statistics.median(rates)
        p50, p99, cpu = (statistics.median(getattr(r, what) for r in rounds) for what in ("p50_us", "p99_us", "cpu_us"))
        print(
            f"| {connections} | {name} | {middle:,.0f} | {(max(rates) - min(rates)) / middle:.0%} | {ratio:.2f} "
            f"| {p50:,.0f} | {p99:,.0f} | {cpu:.1f} |"
        )
    for connections in options.connections if options.with_history else ():
        pairs = zip(readings[connections, "history"], readings[connections, "fairgate"], strict=True)
        ratios = sorted(with_.p99_us / without.p99_us for with_, without in pairs)
        print(
            f"\np99 with a history to without, round by round, {connections} connections: median "
            f"{statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def compare(options: argparse.Namespace) -> None:
    """Start the servers, load them in turn, print the results."""
    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairgate-bench-")))
        certs, body = folder / "certs", folder / "review.json"
        CertFolder(certs).prepare(datetime.now(UTC))
        body.write_bytes(review_body("nobody" if options.refused else "vision"))
        (folder / "policies").mkdir()
        (folder / "policies" / "policy.yaml").write_text(json.dumps(policy(options.nodes * 16)))
        (folder / "world.json").write_text(json.dumps(world(options.nodes, options.pods_per_node)))
        commands = {name: [__file__, "--role", name, "--certs", str(certs)] for name in ("bare", "shell")}
        if not options.without_fairgate:
            commands["fairgate"] = [
                *(
                    "-m",
                    "webhook",
                    "serve",
                    "--policy",
                    str(folder / "policies"),
                    "--world",
                    str(folder / "world.json"),
                ),
                *("--listen", "127.0.0.1:0", "--certs", str(certs), "--drain-seconds", "0"),
            ]
            if options.with_history:
                commands["history"] = [*commands["fairgate"], "--history", str(folder / "history.db")]
        servers = [
            stack.enter_context(started(name, arguments, folder=folder, core=server_core))
            for name, arguments in commands.items()
        ]
        client, client_name = _client(folder, body)
        for server in servers:
            check(server, body.read_bytes(), certs, is_refused=options.refused)
            measure(server, client, connections=16, seconds=1, core=client_core)
        readings: dict[tuple[int, str], list[Reading]] = {
            (connections, server.name): [] for connections in options.connections for server in servers
        }
        for turn in range(options.rounds):
            for connections in options.connections:
                for server in servers[:: -1 if turn % 2 else 1]:
                    readings[connections, server.name].append(
                        measure(server, client, connections=connections, seconds=options.seconds, core=client_core)
                    )
        report(readings, client=client_name, options=options)


def _client(folder: Path, body: Path) -> tuple[list[str], str]:
    if wrk := shutil.which("wrk"):
        script = folder / "post.lua"
        script.write_text(WRK_SCRIPT % body)
        return [wrk, "-t1", "-c{connections}", "-d{seconds}s", "-s", str(script), "{url}"], "wrk, one thread"
    arguments = ["--url", "{url}", "--body", str(body), "--connections", "{connections}", "--seconds", "{seconds}"]
    name = "asyncio raw sockets (wrk is not installed): slower than the servers, so rates are the client's limit"
    return [sys.executable, __file__, "--role", "client", *arguments], name


def main() -> None:
    """Parse the options and run the requested role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=10)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one round; wrk takes whole seconds")
    parser.add_argument("--without-fairgate", action="store_true", help="compare the bare handler with the shell only")
    parser.add_argument("--with-history", action="store_true", help="compare with a server that records a history, too")
    parser.add_argument("--refused", action="store_true", help="post a pod that is refused, which a history counts")
    for internal in ("--role", "--certs", "--url", "--body"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is None:
        compare(options)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.role == "client":
            body = Path(options.body).read_bytes()
            client = run_client(options.url, body, connections=options.connections[0], seconds=options.seconds)
            runner.run(client)
        else:
            runner.run({"bare": run_bare, "shell": run_shell}[options.role](Path(options.certs)))


if __name__ == "__main__":
    main()
