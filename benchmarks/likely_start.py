"""How many starts fall inside the likely range: a backtest of the forecast of `fairgate queue` on a trace.

Run it from the repository's root: `python benchmarks/likely_start.py --trace TASKS.csv --nodes NODES.csv --every N`.
The trace is simulated twice on each Nth node, so that pods wait. The second time, the moments at which some of the
waiting pods came are stopped at: each is forecast as `fairgate queue` would do it, from pods that ended before.
With --users N, each team has N users, among which its tasks are dealt. With --stated SIGMA they state their run times:
the true ones times a lognormal number with this standard deviation; --liars PART of them always state one second.

The figures of docs/benchmarks.md are those of
    python benchmarks/likely_start.py --trace FILE --nodes FILE --every 120 --seed 0
    python benchmarks/likely_start.py --trace FILE --nodes FILE --every 120 --seed 0 --users 10 --sample 100 \
        --stated 0.5 --liars 0.2
"""

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.simulate import simulation_of
from webhook.core.explain.line_places import Run, StartRange, UnknownStart
from webhook.core.model.amounts import Uid, User
from webhook.core.model.pod import MAX_SECONDS, NO_RUN_TIME, RunTime
from webhook.simulation.engine import Simulation
from webhook.simulation.forecast.forecast import Forecast
from webhook.simulation.task import Task, TaskRecord

ENDED = 1_000
"""Ended pods that are known at a moment, the latest, as on the page."""


@dataclass
class Outcome:
    """What became of the forecasts."""

    real: list[int] = field(default_factory=list)
    inside: int = 0
    earlier: int = 0
    later: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    widths: list[float] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def note(self, found: StartRange | UnknownStart, real: int) -> None:
        self.real.append(real)
        if isinstance(found, UnknownStart):
            kind = "".join(letter for letter in found.reason if not letter.isdigit())
            self.unknown[kind] = self.unknown.get(kind, 0) + 1
            return
        self.inside += found.earliest <= real <= found.latest
        self.earlier += real < found.earliest
        self.later += real > found.latest
        self.widths.append(max(1, found.latest) / max(1, found.earliest))
        self.spans.append(found.latest - found.earliest)


def _run(record: TaskRecord, uid: Uid, *, started: int, ended: int) -> Run:
    task = record.task
    return Run(uid, task.team, started, ended, task.pod.demand.gpus, task.user, task.pod.run_time, created=task.created)


def with_statements(tasks: Iterable[Task], options: argparse.Namespace) -> Iterator[Task]:
    """Yield tasks with users, and with what these state of their run times."""
    dice = random.Random(options.seed)
    for task in tasks:
        number, noise = dice.randrange(options.users), math.exp(dice.gauss(0, options.stated or 0))
        user = User(f"{task.team}-{number}")
        true = task.seconds or 1
        said = 1 if number < options.liars * options.users else max(1, round(true * noise))
        run_time = NO_RUN_TIME if options.stated is None else RunTime(min(said, MAX_SECONDS))
        yield task._replace(user=user, pod=task.pod._replace(run_time=run_time))


def runs_at(simulation: Simulation) -> list[Run]:
    """Return the runs that a cluster would show now: those that go on, and the latest that ended."""
    going_on = [
        _run(pod_of.record, uid, started=pod_of.since, ended=0)
        for uid, pod_of in simulation.cluster.pods.items()
        if pod_of.since is not None
    ]
    ended = [
        _run(record, Uid(record.task.name), started=record.started, ended=record.ended)
        for record in simulation.records
        if record.started is not None and record.ended is not None and not record.evictions
    ]
    return going_on + sorted(ended, key=lambda run: run.ended, reverse=True)[:ENDED]


def backtest(options: argparse.Namespace) -> dict[str, Any]:
    def change(tasks: Iterable[Task]) -> Iterable[Task]:
        return with_statements(tasks, options) if options.users else tasks

    first = simulation_of(options, seed=options.seed, change=change)
    first.run()
    starts = {each.task.name: each.started for each in first.records if each.started and each.wait_seconds}
    dice = random.Random(options.seed)
    chosen = set(dice.sample(sorted(starts), min(options.sample, len(starts))))
    again, outcome = simulation_of(options, seed=options.seed, change=change), Outcome()
    came = {each.task.created for each in again.records if each.task.name in chosen}

    def on_time(running: Simulation) -> None:
        if running.now not in came:
            return
        begun = time.process_time()
        known = [run for run in runs_at(running) if not (options.new and run.ended)]
        forecast = Forecast(running.world, known, now=running.now, clock=time.process_time)
        waiting = [each for each in running.world.waiting.all() if each.created == running.now]
        for each in waiting:
            if each.pod.name in chosen:
                outcome.note(forecast(each.uid), starts[each.pod.name] - running.now)
                chosen.discard(each.pod.name)
        outcome.seconds.append(time.process_time() - begun)

    again.on_time = on_time
    again.run(until=max(came))
    return summary(outcome, again, waited=len(starts), missed=len(chosen))


def summary(outcome: Outcome, simulation: Simulation, *, waited: int, missed: int) -> dict[str, Any]:
    total = len(outcome.real)
    return {
        "nodes": len(simulation.world.fleet),
        "waited": waited,
        "forecast": total,
        "not_in_line": missed,
        "inside_percent_of_all": round(100 * outcome.inside / total, 1),
        "inside": outcome.inside,
        "earlier": outcome.earlier,
        "later": outcome.later,
        "unknown": outcome.unknown,
        "real_wait_seconds": [round(each) for each in statistics.quantiles(outcome.real, n=10)][::4],
        "latest_by_earliest_median": round(statistics.median(outcome.widths), 1),
        "width_seconds_median": round(statistics.median(outcome.spans)),
        "cpu_seconds_median": round(statistics.median(outcome.seconds), 2),
        "cpu_seconds_most": round(max(outcome.seconds), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="tasks with times, as `fairgate simulate` reads them")
    parser.add_argument("--nodes", type=Path, required=True, help="nodes, as `fairgate simulate` reads them")
    parser.add_argument("--every", type=int, default=150, help="use every so manieth node (default 150)")
    parser.add_argument("--sample", type=int, default=200, help="starts that are forecast (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the teams and of the sample (default 1)")
    parser.add_argument("--users", type=int, default=0, help="users of each team (default 0: not known)")
    parser.add_argument("--stated", type=float, default=None, help="users state run times, with this error")
    parser.add_argument("--liars", type=float, default=0.0, help="part of the users that state one second (default 0)")
    parser.add_argument("--new", action="store_true", help="no pod that ended is known, as in a new cluster")
    print(json.dumps(backtest(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
