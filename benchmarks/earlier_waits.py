"""How many waits in the queue lie between the shortest and the longest of the last 20 of the same team and size.

Run it from the repository's root: `python benchmarks/earlier_waits.py --trace TASKS.csv --nodes NODES.csv --every N`.
The trace is simulated on each Nth node, so that pods wait. Of each chosen pod that waited, `fairgate queue` would show,
when it came, how long the last ones waited that had started until then; a wait below a minute is shown as "<1m".

The figures of docs/benchmarks.md are those of
    python benchmarks/earlier_waits.py --trace FILE --nodes FILE --every 120 --seed 0
"""

import argparse
import json
import random
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.simulate import simulation_of
from webhook.addons.simulation.task import TaskRecord
from webhook.core.explain.line_rows import LAST, EarlierStarts, EarlierWaits

_MINUTE = 60


def backtest(options: argparse.Namespace) -> dict[str, Any]:
    simulation = simulation_of(options, seed=options.seed)
    simulation.run()
    waited = [each for each in simulation.records if each.wait_seconds]
    chosen = random.Random(options.seed).sample(waited, min(options.sample, len(waited)))
    return summary(shown_to(chosen, waited), nodes=len(simulation.world.fleet), waited=len(waited))


def shown_to(chosen: Iterable[TaskRecord], waited: Iterable[TaskRecord]) -> list[tuple[int, EarlierStarts | None]]:
    """Return how long pods waited, each with what was known of earlier waits when it came."""
    waits, found = EarlierWaits(), []
    starts = sorted(waited, key=lambda each: each.started or 0, reverse=True)
    for each in sorted(chosen, key=lambda each: each.task.created):
        while starts and (starts[-1].started or 0) <= each.task.created:
            start = starts.pop()
            waits.note(start.task.team, start.task.pod.demand.gpus, start.wait_seconds or 0)
        found.append((each.wait_seconds or 0, waits.of(each.task.team, each.task.pod.demand.gpus)))
    return found


def summary(found: list[tuple[int, EarlierStarts | None]], *, nodes: int, waited: int) -> dict[str, Any]:
    known = [(real, earlier) for real, earlier in found if earlier is not None]
    return {
        "nodes": nodes,
        "waited": waited,
        "looked_at": len(found),
        "none_known": len(found) - len(known),
        "known": _group(known),
        **{
            f"{fewest}_to_{most}_known": _group([pair for pair in known if fewest <= pair[1].number <= most])
            for fewest, most in ((1, 4), (5, LAST - 1), (LAST, LAST))
        },
        "real_wait_seconds": [round(each) for each in statistics.quantiles([real for real, _ in found], n=10)][::4],
    }


def _group(known: list[tuple[int, EarlierStarts]]) -> dict[str, Any]:
    widths = [earlier.longest - _shortest(earlier) for _, earlier in known]
    return {
        "pods": len(known),
        "inside_percent": _inside(known),
        "shorter": sum(real < _shortest(earlier) for real, earlier in known),
        "longer": sum(real > earlier.longest for real, earlier in known),
        "width_seconds_median": round(statistics.median(widths)) if widths else None,
    }


def _inside(known: list[tuple[int, EarlierStarts]]) -> float | None:
    inside = sum(_shortest(earlier) <= real <= earlier.longest for real, earlier in known)
    return round(100 * inside / len(known), 1) if known else None


def _shortest(earlier: EarlierStarts) -> int:
    return earlier.shortest if earlier.shortest >= _MINUTE else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="tasks with times, as `fairgate simulate` reads them")
    parser.add_argument("--nodes", type=Path, required=True, help="nodes, as `fairgate simulate` reads them")
    parser.add_argument("--every", type=int, default=150, help="use every so manieth node (default 150)")
    parser.add_argument("--sample", type=int, default=200, help="starts that are looked at (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the teams and of the sample (default 1)")
    print(json.dumps(backtest(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
