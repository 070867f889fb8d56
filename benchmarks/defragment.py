"""How much moves of running tasks help the largest ones: a trace under churn, with and without moves.

Tasks come and go at random around a load, as in packing.py. The largest tasks that find no node wait in order, and are
tried again whenever a task ends. With moves, the planner of `fairgate defragment` seeks room for each of them when it
comes and every few minutes then; its moves are carried out at once. A task that is moved does the work since its last
checkpoint again. All other tasks that find no node are lost. With `--bounded`, moves are made as the evictor makes
them: each minute, within the default bounds of policy section `defragment`, once as much GPU time was waited for as is
done again. With `--ahead` they are also made while no task waits, as in a window that is always open.

`packed` is the bound that moves could reach: which share of the largest tasks would find a node if all tasks that run
were placed again from empty, the largest first.

The figures of docs/benchmarks.md are those of
    python benchmarks/defragment.py --nodes NODES.csv --pods PODS.csv --scattered P
    python benchmarks/defragment.py --nodes NODES.csv --pods PODS.csv --scattered P --lifetimes 1 --bounded --ahead
"""

import argparse
import heapq
import json
import random
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from packing_parts.fairgate import TEAM, Fairgate
from packing_parts.trace import Arrival, NodeRow, Task, churning, read_nodes, read_tasks

from webhook.addons.moves.candidates import (
    MovablePod,
    Moves,
    PastMove,
    Room,
    Target,
    bound_on,
    moved_pods,
    moves_left,
    recent,
)
from webhook.addons.moves.search import TriedMoves, cheapest_moves
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.policy_addons import DefragmentRules
from webhook.core.quota.charges import InFlightCharge
from webhook.core.reclaim.victims import Victim

SETTLING = 2.0
MEASURED = 5.0
RETRY_SECONDS = 300
BOUNDED_SECONDS = 60
SOON_SECONDS = 600
RULES = DefragmentRules(on_demand=True)
PACKED_EVERY = 10


@dataclass(slots=True)
class Running:
    """A task on a node: when it started and ends, in seconds, and whether it may be moved."""

    task: Task
    started: float
    ends: float
    is_movable: bool


@dataclass(slots=True)
class Result:
    """One run; times in seconds, work in GPU-seconds."""

    seed: int
    large: int = 0
    at_once: int = 0
    soon: int = 0
    started: int = 0
    waits: list[float] = field(default_factory=list)
    moves: int = 0
    done_again: float = 0.0
    work: float = 0.0
    packed_tried: int = 0
    packed_placed: int = 0
    milliseconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        kept = {key: value for key, value in asdict(self).items() if not isinstance(value, list)}
        plans = self.milliseconds
        return kept | {
            "at_once_percent": round(100 * self.at_once / max(1, self.large), 1),
            "soon_percent": round(100 * self.soon / max(1, self.large), 1),
            "packed_percent": round(100 * self.packed_placed / max(1, self.packed_tried), 1),
            "mean_wait_seconds": round(mean(self.waits), 1) if self.waits else 0.0,
            "done_again_percent": round(100 * self.done_again / max(1.0, self.work), 3),
            "plan_ms_p50": round(quantiles(plans, n=100)[49], 1) if len(plans) > 1 else None,
            "plan_ms_most": round(max(plans), 1) if plans else None,
        }


class Cluster:
    """The tasks on the nodes, and those of the largest size that wait."""

    def __init__(self, rows: list[NodeRow], tasks: list[Task], options: argparse.Namespace, result: Result) -> None:
        self.rows, self.tasks, self.options, self.result = rows, tasks, options, result
        self.rng = random.Random(result.seed)
        self.placer = Fairgate(rows, tasks, self.rng)
        self.running: dict[Uid, Running] = {}
        self.ends: list[tuple[float, Uid]] = []
        self.waiting: list[tuple[float, float, Task]] = []  # since, stay
        self.tried_at = 0.0
        self.largest = max(task.gpus for task in tasks)
        self.past: list[PastMove] = []

    def end_until(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            at, uid = heapq.heappop(self.ends)
            running = self.running.get(uid)
            if running is None or running.ends > at:  # it was moved, and ends later
                continue
            self.placer.remove(uid, running.task)
            del self.running[uid]
            self.start_waiting(at)

    def start_waiting(self, now: float) -> None:
        while self.waiting:
            since, stay, task = self.waiting[0]
            pause = BOUNDED_SECONDS if self.options.bounded else RETRY_SECONDS
            may_move = self.options.moves and now >= self.tried_at + pause
            if not (self.start(task, now, stay) or (may_move and self.make_room(task, now, stay, since=since))):
                return
            self.waiting.pop(0)
            self.note_start(since, now)

    def note_start(self, since: float, now: float) -> None:
        if since >= SETTLING * self.options.lifetime:
            self.result.started += 1
            self.result.waits.append(now - since)
            self.result.soon += now - since <= SOON_SECONDS

    def start(self, task: Task, now: float, stay: float) -> bool:
        is_scattered = task.gpus < self.largest and self.rng.random() * 100 < self.options.scattered
        uid = self.placer.place(task, at_random=self.rng if is_scattered else None)
        if uid is None:
            return False
        self.running[uid] = Running(task, now, now + stay, self.rng.random() * 100 < self.options.movable)
        heapq.heappush(self.ends, (now + stay, uid))
        if now >= SETTLING * self.options.lifetime:
            self.result.work += task.milli / 1000 * stay
        return True

    def make_room(self, task: Task, now: float, stay: float, *, since: float) -> bool:
        """Move tasks so that one more fits, and start it."""
        fleet, demand = self.placer.world.fleet, self.placer.demand(task)
        target = Target("large", TEAM, demand, fleet.open_bits, since=max(1, int(since)))
        return self.make_moves(target, task, now) and self.start(task, now, stay)

    def make_room_ahead(self, now: float) -> None:
        """Move tasks so that one node has the most GPUs free that a task asks for, though none waits for them."""
        fleet, largest = self.placer.world.fleet, max(self.tasks, key=lambda task: task.gpus)
        demand = self.placer.demand(replace(largest, cpu=0, memory=0, models=()))
        if not (self.waiting or now < self.tried_at + BOUNDED_SECONDS or fleet.with_room(demand, fleet.open_bits)):
            self.make_moves(Target("ahead", TEAM, demand, fleet.open_bits), largest, now)

    def make_moves(self, target: Target, task: Task, now: float) -> bool:
        """Carry out the cheapest moves that make room for a task, if there are any that may be made."""
        self.tried_at = now
        fleet, began = self.placer.world.fleet, time.perf_counter()
        self.past = recent(self.past, now=int(now))
        moved = moved_pods(self.past, now=int(now)) if self.options.bounded else {}
        tried = TriedMoves(fleet, self.movable(now), left={}, per_workload=1, moved=moved)
        found = cheapest_moves(target, tried, now=int(now))
        self.result.milliseconds.append(1000 * (time.perf_counter() - began))
        if not isinstance(found, Moves):
            return False
        work = float(found.lost_work) / 840_000
        left = moves_left(self.past, replace(RULES, moves_per_hour=self.options.per_hour), now=int(now))
        if self.options.bounded and bound_on(Room((found,)), RULES, now=int(now), left=left) is not None:
            return False
        if work > self.options.most * task.milli / 1000 * self.options.lifetime / 100:
            return False
        for move in found.moves:
            self.move(move.pod, move.to, now)
            self.past.append(PastMove(int(now), move.pod.workload))
        if now >= SETTLING * self.options.lifetime:
            self.result.moves += len(found.moves)
            self.result.done_again += work
        return True

    def move(self, pod: MovablePod, to: str, now: float) -> None:
        world, running = self.placer.world, self.running[pod.uid]
        resident, charge = world.pod(pod.uid), world.charge_of(pod.uid)
        world.remove_pod(pod.uid)
        world.add_pod(InFlightCharge(resident._replace(node=None), charge, NodeName(to)))
        running.ends += now - self.saved_at(running, now)
        heapq.heappush(self.ends, (running.ends, pod.uid))

    def movable(self, now: float) -> list[MovablePod]:
        world = self.placer.world
        found = []
        for uid, running in self.running.items():
            is_young = self.options.bounded and now < running.started + RULES.minimum_runtime_seconds
            if not running.is_movable or not running.task.gpus or is_young:
                continue
            pod = world.pod(uid)
            node = world.fleet.get(pod.node)
            alike = world.fleet.by_model()[node.model, node.model_label]
            victim = Victim(
                uid,
                Namespace(TEAM),
                uid,
                TEAM,
                pod.node,
                pod.demand,
                started_at=int(running.started),
                saved_at=int(self.saved_at(running, now)),
            )
            found.append(MovablePod(victim, alike, uid))
        return found

    def saved_at(self, running: Running, now: float) -> float:
        every = self.options.checkpoint
        return now - (now - running.started) % every if every else running.started

    def fits_packed(self, task: Task) -> bool:
        """Whether a task would find a node if all others were placed again from empty."""
        again = Fairgate(self.rows, self.tasks, self.rng)
        for each in sorted((each.task for each in self.running.values()), key=lambda each: (-each.milli, -each.cpu)):
            again.place(each)
        return again.place(task) is not None


def run(rows: list[NodeRow], tasks: list[Task], options: argparse.Namespace, *, seed: int) -> Result:
    rng, result = random.Random(seed), Result(seed)
    rows = rng.sample(rows, len(rows))
    capacity = 1000 * sum(row.gpus for row in rows)
    cluster = Cluster(rows, tasks, options, result)
    lifetimes = SETTLING + options.lifetimes
    for arrival in churning(tasks, milli=capacity, load=options.load, lifetimes=lifetimes, rng=rng):
        _arrive(arrival, cluster)
    return result


def _arrive(arrival: Arrival, cluster: Cluster) -> None:
    options, result, task = cluster.options, cluster.result, arrival.task
    now, stay = arrival.at * options.lifetime, arrival.stay * options.lifetime
    cluster.end_until(now)
    if options.moves and options.ahead:
        cluster.make_room_ahead(now)
    if task.gpus < cluster.largest:
        cluster.start(task, now, stay)
        return
    is_measured = arrival.at >= SETTLING
    if is_measured:
        result.large += 1
        if options.packed and result.large % PACKED_EVERY == 1:
            result.packed_tried += 1
            result.packed_placed += cluster.fits_packed(task)
    if cluster.start(task, now, stay) or (options.moves and cluster.make_room(task, now, stay, since=now)):
        result.at_once += is_measured
        cluster.note_start(now, now)
    else:
        cluster.waiting.append((now, stay, task))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, required=True, help="CSV: sn, cpu_milli, memory_mib, gpu, model")
    parser.add_argument(
        "--pods", type=Path, required=True, help="CSV: name, cpu_milli, memory_mib, num_gpu, gpu_milli[, gpu_spec]"
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs, each in a different order (default 1)")
    parser.add_argument("--load", type=float, default=0.95, help="share of the GPUs that is asked for (default 0.95)")
    parser.add_argument("--lifetimes", type=float, default=MEASURED, help="mean lifetimes measured (default 5)")
    parser.add_argument("--lifetime", type=float, default=14_400, help="mean lifetime in seconds (default 4 hours)")
    parser.add_argument("--checkpoint", type=float, default=900, help="seconds between checkpoints, 0: none")
    parser.add_argument("--movable", type=float, default=100, help="percent of tasks that may be moved")
    parser.add_argument(
        "--most", type=float, default=25, help="work done again at most, in percent of a task's mean work (default 25)"
    )
    parser.add_argument(
        "--scattered", type=float, default=0, help="percent of the smaller tasks that another scheduler puts anywhere"
    )
    parser.add_argument("--bounded", action="store_true", help="within the default bounds of the policy")
    parser.add_argument("--ahead", action="store_true", help="with --bounded: also before tasks wait (an open window)")
    parser.add_argument("--per-hour", type=int, default=RULES.moves_per_hour, help="with --bounded: movesPerHour")
    parser.add_argument("--whole-gpus", action="store_true", help="a task that takes a part of a GPU takes a whole one")
    parser.add_argument("--packed", action="store_true", help="also measure the bound, which takes a second for each")
    options = parser.parse_args()
    rows, tasks = read_nodes(options.nodes), read_tasks(options.pods)
    if options.whole_gpus:
        tasks = [replace(task, share=1000) if task.gpus else task for task in tasks]
    for moves in (False, True):
        options.moves = moves
        for seed in range(options.seeds):
            print(json.dumps({"moves": moves} | run(rows, tasks, options, seed=seed).summary()), flush=True)
        options.packed = False


if __name__ == "__main__":
    main()
