"""What is lost with borrowed GPUs, and whether it pays not to lend some: rules against the present policy, in one run.

Run it from the repository's root: `python benchmarks/loans.py --seeds 10 11 12`, or on openb with `--trace TASKS.csv
--nodes NODES.csv --every N`. Four teams have a quarter of the GPUs each as guaranteed shares, a fifth has none and
borrows; all are queued. The load is like that of Helios (loans_parts/helios.py); the tasks of a trace are dealt by
the seed. The decisions are the core's, with these rules between them and the simulation:

- `present`: none.
- `order`: the line of borrowing tasks is sorted by expected run times, in powers of two, the shortest first.
- `hold`: a borrowing task waits while owners are expected to need its room before it ends (loans_parts/holds.py).
- `both`.
- `hold-returns`, `hold-known`, `both-known`: the same with the true returns of the owners, and the last two also with
  true run times. These are bounds: no rule can know that.

Expected run times are medians of earlier tasks of the same user and size; the expected return is the present use of
owners and its 95th percentile of rises within the same time, over the last four weeks. Waits, in hours, are those of
the borrowing team alone, in all tries of a task; `first` are those until its first start. `late` is how much later a
task ends than if it had started at once: waits and lost work.

The figures of docs/adr/0022-not-built.md are those of
    python benchmarks/loans.py --seeds 10 11 12
    python benchmarks/loans.py --trace FILE --nodes FILE --every 120 --seeds 0 --owners 0.6 --borrowers 0.4 \
        --checkpoint 3600
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import log2
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.foreign_trace import own_table
from benchmarks.loans_parts.helios import rows
from benchmarks.loans_parts.holds import Holds, held_back
from benchmarks.loans_parts.knowledge import LearnedReturns, TrueReturns, gpus_of, learned_run_times, true_run_times
from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import Settings, Task
from webhook.addons.simulation.traces.formats import NodeRow, Row, nodes_of, read_nodes, with_shares
from webhook.addons.simulation.traces.load import Reading, read_trace, tasks_of
from webhook.core.explain.line_rows import percentiles
from webhook.core.model.amounts import ONE_GPU, TeamName
from webhook.core.model.policy import Defaults, OnLimit, OnNoRoom, Policy, QueueRules, Share, Team
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.world.world import World

HOUR = 3_600
OWNERS = tuple(TeamName(f"owner-{number}") for number in range(4))
BORROWERS = TeamName("borrowers")
PART = 0.95


class Rule(NamedTuple):
    """What a rule does, and what it knows."""

    has_order: bool = False
    has_holds: bool = False
    knows_returns: bool = False
    knows_run_times: bool = False


RULES = {
    "present": Rule(),
    "order": Rule(has_order=True),
    "hold": Rule(has_holds=True),
    "both": Rule(has_order=True, has_holds=True),
    "hold-returns": Rule(has_holds=True, knows_returns=True),
    "hold-known": Rule(has_holds=True, knows_returns=True, knows_run_times=True),
    "both-known": Rule(has_order=True, has_holds=True, knows_returns=True, knows_run_times=True),
}


@dataclass(frozen=True, slots=True)
class Load:
    """Nodes and what comes; tasks that come before `settled` are not counted."""

    nodes: list[NodeRow]
    rows: list[Row]
    settled: int
    weights: dict[TeamName, int]
    is_shared: bool

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


class Outcome(NamedTuple):
    """One run: hours, GPU-hours."""

    lost: float
    evictions: int
    wait_mean: float
    wait_p90: float
    first_mean: float
    first_p90: float
    late_mean: float
    owners_late: float


def load_of(options: argparse.Namespace, seed: int) -> Load:
    asked = {name: options.owners / len(OWNERS) for name in OWNERS} | {BORROWERS: options.borrowers}
    weights = {name: round(1_000 * part) for name, part in asked.items()}
    if options.trace is None:
        nodes = [NodeRow(f"node-{number:03}", 8) for number in range(options.count)]
        gpus = sum(node.gpus for node in nodes)
        drawn = rows({name: part * gpus for name, part in asked.items()}, days=options.days, seed=seed)
        return Load(nodes, drawn, options.settled * 86_400, weights, is_shared=False)
    with options.nodes.open(newline="") as file:
        nodes = read_nodes(own_table(file), name=str(options.nodes))[:: options.every]
    with options.trace.open(newline="") as file:
        found = read_trace(own_table(file), name=str(options.trace)).rows
    models = {node.model for node in nodes}
    usable = [row for row in found if row.gpus and (not row.models or models & set(row.models))]
    return Load(nodes, usable, options.settled * 86_400, weights, is_shared=True)


def policy_of(gpus: int) -> Policy:
    shares = dict.fromkeys(OWNERS, gpus // len(OWNERS)) | {BORROWERS: 0}
    teams = tuple(Team(name, namespaces=(name,), gpus=Share(n * ONE_GPU, gpus * ONE_GPU)) for name, n in shares.items())
    line = QueueRules(depth=100_000)
    return Policy(teams=teams, defaults=Defaults(OnLimit.QUEUE, OnNoRoom.QUEUE), queue=line, hash="benchmark")


def run(load: Load, rule: Rule, options: argparse.Namespace, seed: int) -> Outcome:
    policy = policy_of(load.gpus)
    world = World(with_shares(policy) if load.is_shared else policy)
    for node in nodes_of(load.nodes, is_shared=load.is_shared):
        world.set_node(node)
    world.sort_nodes()
    tasks = tasks_of(load.rows, world, Reading("load", seed=seed, weights=load.weights))
    run_times = true_run_times(tasks) if rule.knows_run_times else learned_run_times(tasks)
    if rule.has_order:
        tasks = [_sorted(task, run_times) for task in tasks]
    simulation = Simulation(world, tasks, settings=Settings(checkpoint_seconds=options.checkpoint))
    holds = (
        holds_of(simulation, tasks, run_times, rule, patience_seconds=options.patience * HOUR)
        if rule.has_holds
        else None
    )
    simulation.on_time = watch = Losses(holds)
    with nullcontext() if holds is None else held_back(holds):
        simulation.run()
    return outcome_of(simulation, watch, since=tasks[0].created + load.settled)


def _sorted(task: Task, run_times: dict[str, int]) -> Task:
    return task._replace(priority=-round(log2(run_times[task.name]))) if task.team == BORROWERS else task


def holds_of(
    simulation: Simulation, tasks: list[Task], run_times: dict[str, int], rule: Rule, *, patience_seconds: int
) -> Holds:
    policy = simulation.world.policy
    shares = {team.name: team.gpus.guaranteed / ONE_GPU for team in policy.teams}
    returns = TrueReturns(tasks, shares) if rule.knows_returns else LearnedReturns(tasks[0].created, part=PART)
    gpus = sum(each.capacity for each in gpu_inventory(simulation.world.fleet, policy)) / ONE_GPU
    return Holds(simulation, run_times, returns, gpus=gpus, patience_seconds=patience_seconds)


class Losses:
    """What each eviction lost, with its time: a record knows the sum of its evictions only."""

    def __init__(self, holds: Holds | None) -> None:
        self.lost: list[tuple[int, float]] = []
        self._holds = holds
        self._before: dict[str, int] = {}

    def __call__(self, simulation: Simulation) -> None:
        for eviction in simulation.evictions[len(self.lost) :]:
            record = eviction.record
            seconds = 0 if record is None else record.lost_seconds - self._before.get(eviction.name, 0)
            gpus = 0.0 if record is None else gpus_of(record.task)
            self._before[eviction.name] = self._before.get(eviction.name, 0) + seconds
            self.lost.append((eviction.at, gpus * seconds / HOUR))
        if self._holds is not None:
            self._holds.look()


def outcome_of(simulation: Simulation, losses: Losses, *, since: int) -> Outcome:
    waits: list[float] = []
    first: list[float] = []
    late: dict[bool, list[float]] = {True: [], False: []}
    for record in simulation.records:
        task = record.task
        if task.created < since or record.ended is None or record.wait_seconds is None:
            continue
        is_borrower = task.team == BORROWERS
        beyond = max(0, record.ended - task.created - (task.seconds or 0))
        late[is_borrower].append(beyond / HOUR)
        if is_borrower:
            waits.append(max(0, beyond - record.lost_seconds) / HOUR)
            first.append(record.wait_seconds / HOUR)
    lost = [gpu_hours for at, gpu_hours in losses.lost if at >= since]
    return Outcome(
        lost=sum(lost),
        evictions=len(lost),
        wait_mean=mean(waits),
        wait_p90=percentiles(waits).p90 or 0.0,
        first_mean=mean(first),
        first_p90=percentiles(first).p90 or 0.0,
        late_mean=mean(late[True]),
        owners_late=mean(late[False] or [0.0]),
    )


def table_row(name: str, found: list[Outcome], present: list[Outcome]) -> str:
    """Return the means of the runs, each with its change from the present policy in percent."""

    def cell(value: Callable[[Outcome], float]) -> str:
        now, before = mean(map(value, found)), mean(map(value, present))
        return f"{now:.2f} ({100 * now / before - 100:+.0f} %)" if before else f"{now:.2f}"

    better = sum(each.lost <= 0.67 * before.lost for each, before in zip(found, present, strict=True))
    cells = [cell(lambda each, number=number: each[number]) for number in range(len(Outcome._fields))]
    return f"| {name} | {' | '.join(cells)} | {better} of {len(found)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12], help="of the loads (default 10 11 12)")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), help="default all; present always")
    parser.add_argument("--count", type=int, default=8, help="nodes of 8 GPUs (default 8)")
    parser.add_argument("--days", type=int, default=7, help="for which jobs come (default 7)")
    parser.add_argument("--settled", type=int, default=2, help="the first days, which are not counted (default 2)")
    parser.add_argument("--owners", type=float, default=0.5, help="part of the GPUs that owners ask for (default 0.5)")
    parser.add_argument("--borrowers", type=float, default=0.25, help="part that borrowers ask for (default 0.25)")
    parser.add_argument("--checkpoint", type=int, default=0, help="seconds between checkpoints (default 0: none)")
    parser.add_argument("--patience", type=int, default=24, help="hours for which a task is held at most (default 24)")
    parser.add_argument("--trace", type=Path, help="tasks with times, of openb")
    parser.add_argument("--nodes", type=Path, help="nodes of the trace")
    parser.add_argument("--every", type=int, default=120, help="use every so manieth node of the table (default 120)")
    options = parser.parse_args()
    if (options.trace is None) != (options.nodes is None):
        parser.error("--trace and --nodes go together")
    found: dict[str, list[Outcome]] = {}
    for name in dict.fromkeys(["present", *options.rules]):
        found[name] = []
        for seed in options.seeds:
            outcome = run(load_of(options, seed), RULES[name], options, seed)
            found[name].append(outcome)
            print(name, seed, " ".join(f"{key}={value:.2f}" for key, value in outcome._asdict().items()), flush=True)
    print(f"| rule | {' | '.join(Outcome._fields)} | a third less lost |")
    print("| --- " * (len(Outcome._fields) + 2) + "|")
    for name, outcomes in found.items():
        print(table_row(name, outcomes, found["present"]))


if __name__ == "__main__":
    main()
