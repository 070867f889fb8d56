"""The cost of following the cluster: per event, to sync, in memory, and for concurrent decisions.

One API server of the benchmark, over HTTP in a separate process, serves all followers in turn, in one run:
`bare`      downloads the lists and parses nothing;
`typed`     kubernetes_asyncio's models: list by pages, then its watch;
`records`   Fairgate's feed into records of the same kind, kept in a dict: what typed does, and no more;
`fairgate`  Fairgate's feed into a world, by which decisions can be made;
then `fairgate serve` decides over TLS at a fixed rate: while nothing changes, and during 2,000 events a second and
endless relists. Run it from the repository's root: `python benchmarks/watch.py`; the size of the goals is
`--nodes 5000 --pods 50000`, and takes some minutes.

The figures of docs/benchmarks.md are those of
    python benchmarks/watch.py --rounds 1 --nodes 1000 --pods 5000
"""

import argparse
import asyncio
import json
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop
from serve import ROOT, Server, check, on_core, started
from serving.inputs import policy, review_body
from watching.api import run_api
from watching.client import run_client
from watching.roles import kubeconfig, run_bare, run_fairgate, run_records, run_typed

from certs.serving import CertFolder

FOLLOWERS = {"bare": run_bare, "typed": run_typed, "records": run_records, "fairgate": run_fairgate}
BUSY = {"rate": 2000.0, "relist": 0.5, "shy": 1.0}
IDLE = {"shy": 1.0}
DONE: dict[str, float] = {}

Reading = dict[str, Any]


def run_role(
    role: str, options: argparse.Namespace, *, url: str, core: int | None, extra: tuple[str, ...] = ()
) -> Reading:
    """Run one role in a separate process and return its results."""
    sizes = [f"--{name}={getattr(options, name)}" for name in ("events", "typed_events", "seconds", "decisions")]
    command = [sys.executable, __file__, "--role", role, "--url", url, *(s.replace("_", "-", 1) for s in sizes), *extra]
    with on_core(core):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        sys.exit(f"{role} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    result: Reading = json.loads(lines[0].removeprefix("RESULT "))
    return result


def order(url: str, orders: dict[str, float]) -> None:
    """Set the behavior of the API server."""
    query = "&".join(f"{name}={value}" for name, value in orders.items())
    urllib.request.urlopen(f"{url}/control?{query}", timeout=10).read()


def relists(server: Server, folder: Path) -> float:
    """Return how often the server listed the pods again, from its metrics."""
    name = 'fairgate_watch_relists_total{kind="pods"}'
    context = ssl.create_default_context(cafile=folder / "certs" / "ca.crt")
    with urllib.request.urlopen(f"{server.url}/metrics", context=context, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(name)))


def decide(api: Server, options: argparse.Namespace, *, folder: Path, cores: tuple[int | None, int | None]) -> Reading:
    """Measure decisions of a real server, alternating idle and busy."""
    certs, body = folder / "certs", folder / "review.json"
    CertFolder(certs).prepare(datetime.now(UTC))
    body.write_bytes(review_body())
    (folder / "policies").mkdir()
    (folder / "policies" / "policy.yaml").write_text(json.dumps(policy(options.nodes * 32)))
    serve = [
        "-m",
        "webhook",
        "serve",
        "--policy",
        str(folder / "policies"),
        "--kubeconfig",
        str(kubeconfig(folder, api.url)),
    ]
    serve += ["--listen", "127.0.0.1:0", "--certs", str(certs), "--drain-seconds", "0"]
    readings: dict[str, list[Reading]] = {"idle": [], "busy": []}
    with started("fairgate", serve, folder=folder, core=cores[0]) as server:
        _until_decides(server, folder, body.read_bytes())
        arguments = ("--body", str(body))
        run_role("client", options, url=server.url, core=cores[1], extra=arguments)
        for turn in range(options.rounds):
            for name in ("idle", "busy")[:: -1 if turn % 2 else 1]:
                order(api.url, BUSY if name == "busy" else IDLE)
                time.sleep(2)
                before = relists(server, folder)
                reading = run_role("client", options, url=server.url, core=cores[1], extra=arguments)
                readings[name].append(reading | {"relists": relists(server, folder) - before})
        order(api.url, DONE)
    return {name: _medians(rounds) for name, rounds in readings.items()}


def _until_decides(server: Server, folder: Path, body: bytes) -> None:
    for _ in range(600):
        try:
            check(server, body, folder / "certs")
        except urllib.error.HTTPError:
            time.sleep(0.1)
        else:
            return
    sys.exit("fairgate serve never got ready")


def _medians(rounds: list[Reading]) -> Reading:
    return {name: statistics.median(reading[name] for reading in rounds) for name in rounds[0]}


def measure(options: argparse.Namespace) -> Reading:
    """Run all roles in turn against one API server."""
    every = sorted(os.sched_getaffinity(0))
    cores = (every[0], every[1]) if len(every) > 1 else (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairgate-bench-")))
        command = [__file__, "--role", "api", "--nodes", str(options.nodes), "--pods", str(options.pods)]
        command += ["--paged"] if options.paged else []
        api = stack.enter_context(started("api", command, folder=folder, core=cores[1]))
        roles = [role for role in FOLLOWERS if role != "typed" or not options.without_typed]
        result: Reading = {role: run_role(role, options, url=api.url, core=cores[0]) for role in roles}
        if options.rounds:
            result |= decide(api, options, folder=folder, cores=cores)
    return result | {"ratios": ratios(result)}


def ratios(result: Reading) -> dict[str, float]:
    """Return the ratios of the results to their baselines."""
    fairgate, bare = result["fairgate"], result["bare"]
    found = {
        f"sync of {role}, times a bare download": result[role]["sync_seconds"] / bare["sync_seconds"]
        for role in ("records", "fairgate")
    }
    if typed := result.get("typed"):
        for role in ("records", "fairgate"):
            found[f"event into {role}, times cheaper than typed"] = typed["event_us"] / result[role]["event_us"]
        found["sync, times faster than typed"] = typed["sync_seconds"] / fairgate["sync_seconds"]
        found["memory, times smaller than typed"] = typed["added_mb"] / fairgate["added_mb"]
    if "busy" in result and result["busy"]["relists"]:  # without any, the API server's process got no processor time
        found["decision p99, busy to idle"] = result["busy"]["p99_ms"] / result["idle"]["p99_ms"]
    return found


def report(result: Reading, options: argparse.Namespace) -> None:
    """Print the results and the setup."""
    print(f"- command: `{' '.join(['python', *sys.argv])}`")
    print(f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load average at the end: {os.getloadavg()[0]:.1f}")
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "msgspec", "kubernetes-asyncio"))
    print(f"- Python {platform.python_version()}, {packages}; {options.nodes} nodes, {options.pods} pods\n")
    print("| follower | sync, s | sync CPU, s | memory added, MB | CPU µs an event |")
    print("| --- | --- | --- | --- | --- |")
    for role in FOLLOWERS:
        if found := result.get(role):
            event = f"{found['event_us']:.1f}" if "event_us" in found else ""
            sync = f"{found['sync_seconds']:.2f} | {found['sync_cpu_seconds']:.2f}"
            print(f"| {role} | {sync} | {found['added_mb']:.0f} | {event} |")
    if typed := result.get("typed"):
        print(f"\nLongest turn of the loop while typed takes one page: {typed['longest_turn_ms']:.0f} ms of CPU")
    found = result["fairgate"]
    print(f"\nTurns of the loop while {BUSY['rate']:,.0f} events/s and {found['relists']} relists went on:", end="")
    print(f" longest {found['longest_turn_ms']:.2f} ms of CPU, {found['turns_over_1_ms']} over 1 ms", end="")
    print(f" and {found['turns_over_half_ms']} over 0.5 ms of {found['turns']:,}; ", end="")
    print(f"longest garbage collection {found['longest_collection_ms']:.2f} ms")
    if "busy" in result:
        print(f"\n| decisions, {options.decisions:g} a second | p50, ms | p99, ms | p99.9, ms | failed | relists |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name in ("idle", "busy"):
            found = result[name]
            print(f"| {name} | {found['p50_ms']:.2f} | {found['p99_ms']:.2f} | {found['p999_ms']:.2f}", end="")
            print(f" | {found['failed']:.0f} | {found['relists']:.0f} |")
    print()
    for name, ratio in result["ratios"].items():
        print(f"- {name}: {ratio:.2f}")


def play(options: argparse.Namespace) -> None:
    """Run one role and print its results."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, tempfile.TemporaryDirectory() as folder:
        if options.role == "api":
            runner.run(run_api(nodes=options.nodes, pods=options.pods, streams_lists=not options.paged))
        elif options.role == "client":
            body = Path(options.body).read_bytes()
            result = runner.run(run_client(options.url, body, rate=options.decisions, seconds=options.seconds))
            print("RESULT", json.dumps(result))
        else:
            events = options.typed_events if options.role == "typed" else options.events
            follow = FOLLOWERS[options.role]
            print(
                "RESULT",
                json.dumps(runner.run(follow(options.url, Path(folder), events=events, seconds=options.seconds))),
            )


def main() -> None:
    """Parse the options and run the requested role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--events", type=int, default=30_000, help="events over which the CPU per event is measured")
    parser.add_argument("--typed-events", type=int, default=3000, help="the same for kubernetes_asyncio")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of one round, and of the measurement of the loop"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of decisions, idle and busy each; 0 leaves them out"
    )
    parser.add_argument("--decisions", type=float, default=200.0, help="decisions a second")
    parser.add_argument("--paged", action="store_true", help="let the API server refuse to stream lists")
    parser.add_argument("--without-typed", action="store_true", help="leave kubernetes_asyncio out")
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown")
    for internal in ("--role", "--url", "--body"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        play(options)
        return
    result = measure(options)
    if options.output == "json":
        print(json.dumps(result, indent=2))
    else:
        report(result, options)


if __name__ == "__main__":
    main()
