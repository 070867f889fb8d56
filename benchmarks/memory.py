"""The resident memory of `fairgate serve` over time while clients create and delete pods at their teams' limits.

The server runs as a process of its own on a world file; its clients keep their connections, create pods of mixed sizes,
are refused at the limit, and delete pods to create others. Prints a line every few seconds. What a server needs for its
present pods and what it caches is there after a minute; memory that grows from then on is kept without need.

    python -m benchmarks.memory --seconds 300

The figures of docs/benchmarks.md are those of
    python -m benchmarks.memory --seconds 200
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.hostile import cpu_seconds, memory_mib, port_of
from benchmarks.serving.churn import Churn
from benchmarks.serving.inputs import world

ROOT: Final = Path(__file__).parents[1]
SETTLED_SECONDS: Final = 60.0
"""When growth begins to count."""


@contextmanager
def serving(options: argparse.Namespace, namespaces: list[str]) -> Iterator[tuple[str, int]]:
    """Start a server whose teams may use most of the GPUs; return its URL and process."""
    share = options.nodes * 16 * 9 // 10 // len(namespaces)
    gpus = {"guaranteed": share // 2, "limit": share}
    teams = [{"name": name, "namespaces": [name], "gpus": gpus} for name in namespaces]
    with tempfile.TemporaryDirectory(prefix="fairgate-bench-") as name:
        folder = Path(name)
        (folder / "policy").mkdir()
        policy = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", "teams": teams}
        (folder / "policy" / "policy.yaml").write_text(json.dumps(policy))
        (folder / "world.yaml").write_text(json.dumps(world(options.nodes, 0)))
        arguments = ["serve", "--policy", "policy", "--world", "world.yaml", "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "webhook", *arguments, "--certs", "certs", "--drain-seconds", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        try:
            yield f"https://127.0.0.1:{port_of(folder / 'log', process)}/", process.pid
        finally:
            process.terminate()
            process.wait()


def churn(url: str, namespaces: list[str], connections: int, seconds: float) -> None:
    """Load a server from a process of its own, and print what it answered."""
    load = Churn(url, namespaces, random.Random(1))
    asyncio.run(load.run(connections=connections, until=time.monotonic() + seconds))
    print("; ".join(f"{what} {count:,}" for what, count in load.answers.most_common()), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--teams", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--every", type=float, default=10, help="seconds between two lines")
    options = parser.parse_args()
    namespaces = [f"team-{number}" for number in range(options.teams)]
    with serving(options, namespaces) as (url, pid):
        arguments = (url, namespaces, options.connections, options.seconds)
        client = multiprocessing.Process(target=churn, args=arguments)
        began, settled = time.monotonic(), 0.0
        print(f"at rest {memory_mib(pid):.1f} MiB", flush=True)
        client.start()
        while client.is_alive():
            client.join(timeout=options.every)
            passed, resident = time.monotonic() - began, memory_mib(pid)
            if not settled and passed >= SETTLED_SECONDS:
                settled = resident
            print(f"{passed:6.0f} s  {resident:6.1f} MiB  {cpu_seconds(pid):6.1f} s of processor time", flush=True)
        if settled:
            print(f"after {SETTLED_SECONDS:.0f} s {settled:.1f} MiB, at the end {resident - settled:+.1f} MiB")


if __name__ == "__main__":
    main()
