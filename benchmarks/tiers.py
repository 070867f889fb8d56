"""The effect of keeping tiers apart: pods of both tiers come and go, and guaranteed ones reclaim room.

At each moment: what is the largest guaranteed pod for which reclaim can free a node, on how many nodes can it free a
whole node, and does a new guaranteed pod get its room, free or by evicting borrowers? `apart` places by Fairgate's
score, `mixed` by the same score without the tiers.

Without files: nodes of 8 GPUs, pods of 1, 2, 4 and a few of 8. An evicted pod is created again at once, for its
remaining time.

The figures of docs/benchmarks.md are those of
    python benchmarks/tiers.py --seeds 10
"""

import argparse
import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from packing_parts.fairgate import LISTED_NODES, TEAM, Fairgate
from packing_parts.trace import NodeRow, Task, churning, read_nodes, read_tasks

from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS, Tier
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Resident
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import Move, ReclaimSnapshot
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.core.reclaim.victims import Victim, VictimIndex

SETTLING = 2.0
MEASURED = 5.0
TASKS = [Task(6000 * gpus, 24_576 * gpus, gpus, 1000) for gpus in (*(1,) * 60, *(2,) * 25, *(4,) * 12, *(8,) * 3)]


@dataclass(slots=True)
class Pod:
    """A pod with the time of its end."""

    uid: Uid
    task: Task
    tier: Tier
    until: float
    node: NodeName
    devices: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """The counts, and the result of each arrival."""

    rooms: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)
    came: Counter[tuple[Tier, bool]] = field(default_factory=Counter)
    ran: Counter[tuple[Tier, bool]] = field(default_factory=Counter)
    evicted_gpus: float = 0.0


class Place:
    """A cluster with pods of both tiers."""

    def __init__(self, rows: list[NodeRow], tasks: list[Task], rng: random.Random, *, is_apart: bool) -> None:
        self._fairgate = Fairgate(rows, tasks, rng)
        self._fleet = self._fairgate.world.fleet
        self._is_apart = is_apart
        self._gpus = {node.name: row.gpus for node, row in zip(self._fleet.nodes(), rows, strict=True)}
        self._kept: dict[NodeName, Counter[int]] = {name: Counter() for name in self._gpus}
        self._victim_index = VictimIndex()
        self._serial = 0
        self.pods: dict[Uid, Pod] = {}
        self.milli = 0

    def come(self, task: Task, tier: Tier, *, now: float, until: float) -> tuple[Pod | None, list[Pod]]:
        """Place a pod; a guaranteed one evicts others if it must."""
        demand, gone = self._fairgate.demand(task), []
        self._fleet.gpus.demand_mix.note(demand)
        found = best_nodes(
            self._fleet,
            demand,
            self._fleet.matching(NO_CONSTRAINTS),
            count=LISTED_NODES,
            tier=tier if self._is_apart else Tier.GUARANTEED,
        )
        node = found[0] if found else None
        if node is None and tier is Tier.GUARANTEED and (move := self._reclaim(demand, now)) is not None:
            gone = [self.leave(victim.uid) for victim in move.victims]
            node = move.node
        return (None if node is None else self._put(task, demand, tier, node, now=now, until=until)), gone

    def _put(self, task: Task, demand: Demand, tier: Tier, node: NodeName, *, now: float, until: float) -> Pod:
        self._serial += 1
        uid = Uid(f"u{self._serial}")
        if tier is Tier.PREEMPTIBLE and self._is_apart:
            self._fleet.set_borrowed(uid, demand, is_borrowed=True)
        self._fleet.take(node, demand, holder=uid)
        devices = self._fleet.devices_of(node, uid) or tuple(range(-task.gpus * self._serial, 0))[: task.gpus]
        pod = self.pods[uid] = Pod(uid, task, tier, until, node, devices)
        self.milli += task.milli
        if tier is Tier.GUARANTEED:
            self._kept[node].update(devices)
        elif task.gpus:
            at = int(now * 100_000)
            self._victim_index.add(Victim(uid, Namespace(TEAM), uid, TEAM, node, demand, started_at=at, saved_at=at))
        return pod

    def leave(self, uid: Uid) -> Pod:
        pod = self.pods.pop(uid)
        demand = self._fairgate.demand(pod.task)
        self._fleet.take(pod.node, demand, sign=-1, holder=uid)
        self._fleet.set_borrowed(uid, demand, is_borrowed=False)
        self._victim_index.remove(uid)
        self.milli -= pod.task.milli
        if pod.tier is Tier.GUARANTEED:
            kept = self._kept[pod.node]
            kept.subtract(pod.devices)
            for device in pod.devices:
                if not kept[device]:
                    del kept[device]
        return pod

    def _reclaim(self, demand: Demand, now: float) -> Move | None:
        pod = Resident(Uid("w"), Namespace(TEAM), "w", demand, None, None, team_label=TEAM, tier_label="guaranteed")
        waiting = ReclaimPod(pod)
        return next(
            iter(
                plan(
                    [waiting],
                    ReclaimSnapshot(fleet=self._fleet, victim_index=self._victim_index, now=int(now * 100_000)),
                ).moves
            ),
            None,
        )

    def rooms(self) -> list[int]:
        """Return for each node the whole GPUs that reclaim could free for one pod."""
        return [gpus - len(self._kept[name]) for name, gpus in self._gpus.items()]


def run(rows: list[NodeRow], tasks: list[Task], *, seed: int, load: float, share: float, is_apart: bool) -> Tally:
    rng = random.Random(seed)
    rows = rng.sample(rows, len(rows))
    place, tally = Place(rows, tasks, rng, is_apart=is_apart), Tally()
    largest, capacity = max(row.gpus for row in rows), 1000 * sum(row.gpus for row in rows)
    leaving: list[tuple[float, Uid]] = []
    arrivals = churning(tasks, milli=capacity, load=load, lifetimes=SETTLING + MEASURED, rng=rng)
    for arrival in arrivals:
        tier = Tier.GUARANTEED if rng.random() < share else Tier.PREEMPTIBLE
        while leaving and leaving[0][0] <= arrival.at:
            _, uid = heapq.heappop(leaving)
            if uid in place.pods:
                place.leave(uid)
        again = [(arrival.task, tier, arrival.at + arrival.stay)]
        is_counted = arrival.at >= SETTLING
        while again:
            task, whose, until = again.pop(0)
            pod, gone = place.come(task, whose, now=arrival.at, until=until)
            if pod is not None:
                heapq.heappush(leaving, (until, pod.uid))
            again += [(each.task, each.tier, each.until) for each in gone]
            if is_counted and whose is tier:
                tally.came[tier, task.gpus == largest] += 1
                tally.ran[tier, task.gpus == largest] += pod is not None
            tally.evicted_gpus += is_counted * sum(each.task.milli for each in gone) / 1000
        if is_counted:
            rooms = place.rooms()
            tally.rooms.append(max(rooms))
            tally.whole.append(rooms.count(largest))
            tally.allocated.append(place.milli / capacity)
    return tally


def row(name: str, tallies: list[Tally], largest: int) -> str:
    rooms = [room for tally in tallies for room in tally.rooms]

    def ran(tier: Tier) -> str:
        came = sum(tally.came[tier, True] for tally in tallies)
        return f"{100 * sum(tally.ran[tier, True] for tally in tallies) / came:.1f}" if came else "-"

    cells = [
        f"{100 * sum(room >= largest for room in rooms) / len(rooms):.1f}",
        f"{mean(rooms):.2f}",
        f"{mean(each for tally in tallies for each in tally.whole):.2f}",
        ran(Tier.GUARANTEED),
        ran(Tier.PREEMPTIBLE),
        f"{mean(tally.evicted_gpus for tally in tallies):.0f}",
        f"{100 * mean(each for tally in tallies for each in tally.allocated):.2f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, help="nodes of a trace, as for packing.py")
    parser.add_argument("--pods", type=Path, help="tasks of a trace, as for packing.py")
    parser.add_argument("--count", type=int, default=24, help="without a trace: nodes of 8 GPUs (default 24)")
    parser.add_argument("--load", type=float, default=0.9, help="of the GPUs, both tiers together (default 0.9)")
    parser.add_argument("--guaranteed", type=float, default=0.7, help="share of the pods that are (default 0.7)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--policy", action="append", choices=("apart", "mixed"), help="only this (default both)")
    options = parser.parse_args()
    kind = NodeRow("g", 96_000, 393_216, 8, "G2")
    rows = [kind] * options.count if options.nodes is None else read_nodes(options.nodes)
    tasks = TASKS if options.pods is None else read_tasks(options.pods)
    largest = max(each.gpus for each in rows)
    print(
        f"| tiers | time a pod of {largest} could be placed, % | largest room, mean | nodes that could be given whole "
        f"| guaranteed of {largest} that ran, % | borrowing of {largest}, % | GPUs reclaimed | allocated % |"
    )
    print("| --- " * 8 + "|")
    for name in options.policy or ("mixed", "apart"):
        tallies = [
            run(rows, tasks, seed=seed, load=options.load, share=options.guaranteed, is_apart=name == "apart")
            for seed in range(options.seeds)
        ]
        print(row(name, tallies, largest), flush=True)


if __name__ == "__main__":
    main()
