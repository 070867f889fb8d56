"""How long others wait while a tenant sends objects that make pods, of every known kind and as hostile as is known.

Part of `python -m benchmarks.hostile`: Jobs, workloads, gangs and claims at every size, each on the path that reads it.
Alone it measures the processor time of the turns of the event loop that they take, which other load of the machine
hardly lengthens: in this process, the least of three, at the speed of an idle machine (`tests/attacks/crowd.py`).

    python -m benchmarks.hostile_workloads --nodes 1000

The figures of docs/benchmarks.md are those of
    python -m benchmarks.hostile_workloads --nodes 1000
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tests.attacks.crowd import crowded, reviewer, slowness, turn
from tests.attacks.expansions import claims, expansions
from tests.attacks.shapes import MIB, Json, again, pod, review, workloads

SIZES: Final = {"4 KiB": 4096, "60 KiB": 60 * 1024, "250 KiB": 250 * 1024, "1 MiB": MIB - 4096, "3 MiB": 3 * MIB}
PATHS: Final = ("/workloads", "/jobs", "/gangs", "/claims")
_TIMES: Final = 3


class Attacker(Protocol):
    """Posts a review, and returns the seconds until its answer."""

    def post(self, body: bytes, path: str = "/mutate") -> float: ...


class Neighbor(Protocol):
    """Posts ordinary reviews; returns the longest wait since the last call, in seconds."""

    def take(self) -> float: ...


class Row(NamedTuple):
    """The longest wait of the neighbor, and processor time of one request, both in milliseconds."""

    waited: float
    cpu: float
    name: str


def measure(attacker: Attacker, neighbor: Neighbor, pid: int, *, cpu_seconds: Callable[[int], float]) -> None:
    """Print for each path and size the shape for which the neighbor waits longest, and that which costs most."""
    before = _resident_mib(pid)
    print("\n| path | size | shapes | neighbor waits at most, ms | during | most processor time, ms | for |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in PATHS:
        for size, number in SIZES.items():
            rows = [
                _row(attacker, neighbor, pid, path=path, name=name, shape=shape, cpu_seconds=cpu_seconds)
                for name, shape in _shapes(path, number)
            ]
            longest, costliest = max(rows), max(rows, key=lambda row: row.cpu)
            waits = f"{longest.waited:.1f} | {longest.name}"
            print(f"| {path} | {size} | {len(rows)} | {waits} | {costliest.cpu:.0f} | {costliest.name} |", flush=True)
    print(f"\nObjects: {_resident_mib(pid) - before:+.1f} MiB resident, {_peak_mib(pid) - before:+.1f} at the peak")


def _shapes(path: str, size: int) -> Iterator[tuple[str, Json]]:
    if path == "/claims":
        yield from claims(size)
    else:
        yield from workloads(size)
        yield from expansions(size)


def _row(
    attacker: Attacker,
    neighbor: Neighbor,
    pid: int,
    *,
    path: str,
    name: str,
    shape: Json,
    cpu_seconds: Callable[[int], float],
) -> Row:
    body = review(shape)
    neighbor.take()
    before = cpu_seconds(pid)
    for number in range(_TIMES):
        attacker.post(again(body, number), path)
    return Row(1000 * neighbor.take(), 1000 * (cpu_seconds(pid) - before) / _TIMES, name)


def _resident_mib(pid: int) -> float:
    return _status_kib(pid, "VmRSS") / 1024


def _peak_mib(pid: int) -> float:
    return _status_kib(pid, "VmHWM") / 1024


def _status_kib(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    """Measure turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    options = parser.parse_args()
    webhook = reviewer(crowded(options.nodes))
    turn(webhook, "mutate", review(pod()))  # resolved by the first decision
    gc.collect()
    gc.freeze()
    print("| path | size | shapes | longest turn, ms | of |\n| --- | --- | --- | --- | --- |")
    for path in PATHS:
        for size, number in SIZES.items():
            turns = []
            for name, shape in _shapes(path, number):
                body = review(shape)
                least = min(turn(webhook, path[1:], again(body, attempt)).milliseconds for attempt in range(_TIMES))
                turns.append((least, name))
            longest, name = max(turns)
            print(f"| {path} | {size} | {len(turns)} | {longest / slowness():.0f} | {name} |", flush=True)


if __name__ == "__main__":
    main()
