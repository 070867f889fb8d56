"""Fairgate beside stock Kubernetes, Kueue and Volcano: the same load, the same client, the same control plane.

`jobs`            one-GPU Jobs of three teams of equal weight, against a quota for a fourth of them; each ends after
                  `--seconds`; team a creates half of them, and its fair part is a third;
`gangs`           Jobs whose pods start together or not at all, among such one-GPU Jobs;
`departments`     one department has borrowed every GPU, and the other takes its half back, with pods of 4 GPUs;
`queue-releases`  bare pods wait for full nodes, where slots come free at `--per-second`: how long is each unused?
Each run has a new control plane. Systems take turns, and another begins in each round. A system that cannot do a work
says so. Prints a Markdown table; medians over the rounds, with the range. Kueue and Volcano are built from their Go
modules the first time that they are named, which takes some 12 minutes on two cores. Run it from the repository's
root: `python benchmarks/rivals.py --work jobs --systems stock,fairgate,kueue,volcano`.

The figures of docs/benchmarks.md are those of
    python benchmarks/rivals.py --work jobs --jobs 4000 --nodes 500 --seconds 30
    python benchmarks/rivals.py --work gangs --jobs 1000 --gangs 50 --nodes 100 --seconds 30
    python benchmarks/rivals.py --work departments --nodes 125 --timeout 240
    python benchmarks/rivals.py --work queue-releases --jobs 60 --nodes 8 --per-second 20
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.clusters.load import spread
from benchmarks.side_by_side.loads import GPUS_PER_NODE, Sizes, Work
from benchmarks.side_by_side.run import Reading, run
from benchmarks.side_by_side.systems import SYSTEMS, System, skipped
from benchmarks.side_by_side.tables import tables
from benchmarks.turns import in_turn
from tests.control_plane import build
from tests.control_plane.versions import CONTROL_PLANE

JOBS_PER_QUOTA = 4


def compare(systems: Sequence[System], work: Work, options: argparse.Namespace) -> dict[str, list[Reading]]:
    """Run all rounds."""
    readings: dict[str, list[Reading]] = defaultdict(list)
    able = [system for system in systems if not skipped(system, work)]
    sizes = sizes_of(work, options)
    for system in in_turn(able, options.rounds):
        reading = run(system, work, sizes, connections=options.connections, timeout=options.timeout)
        readings[system.name].append(reading)
        seconds = "not done" if reading.seconds is None else f"{reading.seconds:.1f} s"
        print(f"{system.name}: {reading.done} of {reading.pods} pods, {seconds}", file=sys.stderr, flush=True)
    return {system.name: readings[system.name] for system in systems}


def sizes_of(work: Work, options: argparse.Namespace) -> Sizes:
    """Return the sizes, where some follow from others."""
    quota = options.quota or (options.jobs // JOBS_PER_QUOTA if work is Work.JOBS else options.nodes * GPUS_PER_NODE)
    return Sizes(
        nodes=options.nodes,
        jobs=options.jobs,
        gangs=options.gangs,
        gang_size=options.gang_size,
        quota=quota,
        seconds=options.seconds,
        per_second=options.per_second,
    )


def systems_of(text: str) -> list[System]:
    """Return the systems of a list of names."""
    names = text.split(",")
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise argparse.ArgumentTypeError(f"no system is called {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    return [SYSTEMS[name] for name in dict.fromkeys(names)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=systems_of, default=",".join(SYSTEMS), help="separated by commas")
    parser.add_argument("--work", type=Work, choices=list(Work), default=Work.JOBS)
    parser.add_argument("--jobs", type=int, default=200, help="Jobs of one GPU, or pods that wait (queue-releases)")
    parser.add_argument("--nodes", type=int, default=25, help="nodes of 8 GPUs")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--gangs", type=int, default=4)
    parser.add_argument("--gang-size", type=int, default=16)
    parser.add_argument("--quota", type=int, help="GPUs of all teams; by default a fourth of the Jobs, or all nodes")
    parser.add_argument("--seconds", type=float, default=5, help="how long a pod runs")
    parser.add_argument("--per-second", type=float, default=20, help="slots that come free (queue-releases)")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--timeout", type=float, default=600, help="seconds after which a run is given up")
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown")
    options = parser.parse_args(arguments)
    build.ensure([*CONTROL_PLANE, *(recipe for system in options.systems for recipe in system.builds)])
    readings = compare(options.systems, options.work, options)
    if options.output == "json":
        print(json.dumps({name: [asdict(reading) for reading in found] for name, found in readings.items()}))
        return
    print(f"{options.work}: {sizes_of(options.work, options)}, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    reasons = {system.name: skipped(system, options.work) for system in options.systems}
    for line in tables(options.work, readings, reasons=reasons, spread=spread):
        print(line)


if __name__ == "__main__":
    main()
