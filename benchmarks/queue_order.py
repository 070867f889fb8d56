"""Time of a change of the queue by itself: no API, no cluster, no placement.

Run it from the repository's root: `python benchmarks/queue_order.py`. Fills the queue with pods of 1, 2, 4 and 8 GPUs
of ten users a team, and measures the processor time of one change: a pod is added; a pod ended, so that one starts and
the next one does not; a pod ended, and nothing may start because of room, or because of the limits of all teams. `odd
sizes`: no room, and no two pods are alike. `judged` is how many entries the caller was asked about.

The figures of docs/benchmarks.md are those of
    python benchmarks/queue_order.py --changes 20
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.core.line.entries import Fits, NoRoom, OverLimit, QueuedPod, QueueEntry, Verdict, Way, entry_of
from webhook.core.line.line_pass import QueuePass
from webhook.core.line.order import Order, Standing, Version
from webhook.core.line.pod_queue import PodQueue
from webhook.core.model.amounts import ONE_GPU, Namespace, NodeName, TeamName, Uid, Units, User
from webhook.core.model.policy import QueueRules

NOW = 1_800_000_000
SIZES = (1, 1, 1, 2, 4, 8)
BURST = 32
USERS = 10
RULES = QueueRules()


@dataclass
class Shares:
    """The standings of all teams, and what their users hold."""

    teams: dict[TeamName, Standing]
    holdings: dict[tuple[TeamName, User | None], Units] = field(default_factory=dict)

    def version(self, team: TeamName) -> Version:
        return Version(team)

    def of(self, team: TeamName) -> Standing:
        return self.teams[team]

    def held(self, team: TeamName, user: User | None) -> Units:
        return self.holdings.get((team, user), 0)


@dataclass
class Room:
    """Judges by the GPUs that are free, or refuses everything by the team's limit."""

    free: Units = 0
    is_over_limit: bool = False
    judged: int = 0

    def __call__(self, entry: QueueEntry, *, way: Way, kept: frozenset[NodeName]) -> Verdict:
        self.judged += 1
        if self.is_over_limit:
            return OverLimit(("team", entry.team))
        return Fits() if entry.gpus <= self.free else NoRoom(kept if way is Way.BACKFILL else frozenset())

    def has_place(self, entry: QueueEntry, limit: Hashable, *, is_owed: bool) -> bool:
        """Return that there is a place, and count the question."""
        del entry, limit, is_owed
        self.judged += 1
        return True


class Bench(NamedTuple):
    """What a change works on; `new` is the pod that may be added."""

    queue: PodQueue
    order: Order
    room: Room
    new: QueueEntry


def entry(number: int, teams: int, dice: random.Random, *, is_odd: bool = False) -> QueueEntry:
    """A waiting pod."""
    team, user = TeamName(f"team-{dice.randrange(teams):03}"), User(f"user-{dice.randrange(USERS)}")
    gpus = dice.choice(SIZES) * ONE_GPU
    kind = ("odd", number) if is_odd else ("pool", gpus)
    limits = (("team", team), ("user", team, user))
    uid = Uid(f"{dice.getrandbits(64):016x}")
    made = dice.randrange(1_000_000)
    return entry_of(
        [QueuedPod(uid, Namespace(team), f"pod-{uid}", team, gpus, NOW - made, user=user, kind=kind, limits=limits)]
    )


def filled(size: int, teams: int, dice: random.Random, *, is_odd: bool = False) -> tuple[PodQueue, Shares]:
    """A queue of this size, and teams that borrow."""
    queue = PodQueue(entry(number, teams, dice, is_odd=is_odd) for number in range(size))
    names = [TeamName(f"team-{number:03}") for number in range(teams)]
    shares = {
        name: Standing(name, 20 * ONE_GPU, dice.randrange(21) * ONE_GPU, dice.randrange(40) * ONE_GPU, 1 + n % 3)
        for n, name in enumerate(names)
    }
    held = {(name, User(f"user-{n}")): dice.randrange(20) * ONE_GPU for name in names for n in range(USERS)}
    return queue, Shares(shares, dict(held))


def add(bench: Bench) -> None:
    """One pod is added and waits: nothing else changes."""
    bench.queue.add(bench.new)


def release(bench: Bench) -> None:
    """One pod ended: one starts in its place, and the next one does not."""
    queue, order, room, _ = bench
    room.free = ONE_GPU
    a_pass = QueuePass(order, RULES, now=NOW)
    while (found := a_pass.next(room)) is not None:
        queue.remove(found.entry.key)
        room.free -= found.entry.gpus
    room.free = 0


def many(bench: Bench) -> None:
    """Many pods ended: as many entries start, the smallest number that a pass is made for."""
    queue, order, room, _ = bench
    room.free = 10_000 * ONE_GPU
    a_pass, found = QueuePass(order, RULES, now=NOW), []
    while len(found) < BURST and (following := a_pass.next(room)) is not None:
        queue.remove(following.entry.key)
        found.append(following.entry)
    room.free = 0
    for each in found:
        queue.add(each)


def nothing(bench: Bench) -> None:
    """One pod ended, and nothing may start."""
    if QueuePass(bench.order, RULES, now=NOW).next(bench.room) is not None:
        raise AssertionError("an entry without room was released")


Change = Callable[[Bench], None]


def measure(change: Change, size: int, teams: int, changes: int, *, is_odd: bool = False, over: bool = False) -> str:
    """Return the median, the 99th percentile in ms, and the judgments of a change."""
    dice = random.Random(7)
    queue, shares = filled(size, teams, dice, is_odd=is_odd)
    order = Order(queue, shares)
    order.look()
    room = Room(is_over_limit=over)
    times = []
    for number in range(changes):
        new = entry(size + number, teams, dice, is_odd=is_odd)
        begun = time.process_time()
        change(Bench(queue, order, room, new))
        times.append((time.process_time() - begun) * 1000)
        if len(queue) < size:
            queue.add(new)
        elif len(queue) > size:
            queue.remove(new.key)
    times.sort()
    return f"{statistics.median(times):6.3f} {times[-1 - len(times) // 100]:6.3f} {room.judged / changes:6.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200, help="changes of each kind")
    options = parser.parse_args()
    print(f"{'ms a change: median, p99; judged':40} {'3 teams':>22} {'100 teams':>22} {'1,000 teams':>22}")
    for size in (100, 1_000, 10_000):
        rows: tuple[tuple[str, Change, dict[str, bool]], ...] = (
            ("a pod is added", add, {}),
            ("one starts", release, {}),
            (f"{BURST} start in one pass", many, {}),
            ("no room", nothing, {}),
            ("every team is over its limit", nothing, {"over": True}),
            ("no room, odd sizes", nothing, {"is_odd": True}),
        )
        for name, change, more in rows:
            cells = (measure(change, size, teams, options.changes, **more) for teams in (3, 100, 1000))
            print(f"{size:>6} wait: {name:28} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
