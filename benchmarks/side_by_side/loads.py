"""What is asked of every system, and the shares it is asked against: pure, the same for all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from tests.control_plane.objects import job, pod

GPUS_PER_NODE: Final = 8
ROOT: Final = "all"
"""The department above all others, or above all teams: what they may use together."""

SMALL: Final = {"cpu": "100m", "memory": "1Gi"}
SKEW: Final = (2, 1, 1)
"""Jobs of the three teams: first come, first served would give the first half of the GPUs; its fair part is a third."""

CLAIM_GPUS: Final = 4
"""Of a pod of the department that takes its share back: several pods of one GPU must go on one node."""


class Work(StrEnum):
    """What is measured."""

    JOBS = "jobs"
    GANGS = "gangs"
    DEPARTMENTS = "departments"
    QUEUE_RELEASES = "queue-releases"


@dataclass(frozen=True, slots=True)
class Team:
    """A team with a namespace of its name, an equal weight and a guaranteed share."""

    name: str
    guaranteed: int
    department: str = ROOT


@dataclass(frozen=True, slots=True)
class Shares:
    """Teams that together may use `quota` GPUs, which is a limit only where the nodes have more.

    `reclaims`: what a team borrowed is taken back by evictions.
    """

    teams: tuple[Team, ...]
    quota: int
    is_limit: bool = False
    reclaims: bool = False

    @property
    def departments(self) -> dict[str, int]:
        """The guaranteed GPUs of each department below the root."""
        found: dict[str, int] = {}
        for team in self.teams:
            if team.department != ROOT:
                found[team.department] = found.get(team.department, 0) + team.guaranteed
        return found


@dataclass(frozen=True, slots=True)
class Order:
    """A Job, or a bare pod. Each pod ends so many seconds after it started to run; None: it runs on."""

    team: Team
    name: str
    pods: int = 1
    gpus: int = 1
    seconds: float | None = None
    is_bare: bool = False

    @property
    def path(self) -> str:
        """The path of its collection in the API."""
        return f"/{'api/v1' if self.is_bare else 'apis/batch/v1'}/namespaces/{self.team.name}/{self._plural}"

    def ending_earlier(self, seconds: float) -> Order:
        """The same with a shorter run."""
        return replace(self, seconds=max(0.0, (self.seconds or 0.0) - seconds))

    @property
    def _plural(self) -> str:
        return "pods" if self.is_bare else "jobs"

    def manifest(self) -> dict[str, Any]:
        """The object before a system adds its marks."""
        labels, notes = {}, {}
        if self.seconds is not None:
            labels["fairgate.test/completes"] = "true"
            notes["fairgate.test/runs-for"] = f"{round(self.seconds * 1000)}ms"
        more: dict[str, Any] = {"gpus": self.gpus, **SMALL}
        if self.is_bare:
            return pod(self.name, labels=labels, annotations=notes, **more)
        return job(self.name, pods=self.pods, labels=labels, annotations=notes, **more)


@dataclass(frozen=True, slots=True)
class Load:
    """What is created: `before` runs when the measurement begins, then `orders`, until all ended, or all run."""

    shares: Shares
    before: tuple[Order, ...]
    orders: tuple[Order, ...]
    until_ended: bool = True

    @property
    def pods(self) -> int:
        return sum(order.pods for order in self.orders)

    @property
    def gpus(self) -> int:
        return sum(order.pods * order.gpus for order in self.orders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the experiment."""

    nodes: int
    jobs: int
    gangs: int
    gang_size: int
    quota: int
    seconds: float
    per_second: float
    seed: int = 1


def load_of(work: Work, sizes: Sizes) -> Load:
    """Return the load of a work."""
    match work:
        case Work.JOBS:
            return _jobs(sizes)
        case Work.GANGS:
            return _gangs(sizes)
        case Work.DEPARTMENTS:
            return _departments(sizes)
        case Work.QUEUE_RELEASES:
            return _queue_releases(sizes)


def split(total: int, parts: int) -> list[int]:
    """Split a number into whole parts that differ by one at most."""
    return [total // parts + (number < total % parts) for number in range(parts)]


def _three_teams(quota: int, sizes: Sizes) -> Shares:
    teams = tuple(Team(name, gpus) for name, gpus in zip(("a", "b", "c"), split(quota, 3), strict=True))
    return Shares(teams, quota, is_limit=quota < sizes.nodes * GPUS_PER_NODE)


def _jobs(sizes: Sizes) -> Load:
    shares = _three_teams(sizes.quota, sizes)
    orders = [Order(team, f"job-{n}", seconds=sizes.seconds) for n, team in enumerate(_skewed(shares.teams, sizes))]
    return Load(shares, (), tuple(orders))


def _skewed(teams: Sequence[Team], sizes: Sizes) -> Iterator[Team]:
    """Yield a team for each job, at random; the first has half of them."""
    yield from random.Random(sizes.seed).choices(teams, weights=SKEW, k=sizes.jobs)


def _gangs(sizes: Sizes) -> Load:
    small = list(_jobs(sizes).orders)
    shares = _three_teams(sizes.quota, sizes)
    gangs = [
        Order(shares.teams[n % 3], f"gang-{n}", pods=sizes.gang_size, seconds=sizes.seconds) for n in range(sizes.gangs)
    ]
    every = max(1, len(small) // max(1, len(gangs)))
    for number, gang in enumerate(gangs):
        small.insert(number * (every + 1), gang)
    return Load(shares, (), tuple(small))


def _departments(sizes: Sizes) -> Load:
    """Research borrows every GPU; then product asks for all of its half."""
    capacity = sizes.nodes * GPUS_PER_NODE
    quarter = capacity // 4
    teams = [Team(f"{name}-{number}", quarter, name) for name in ("research", "product") for number in range(2)]
    borrowers, owners = teams[:2], teams[2:]
    before = [Order(borrowers[n % 2], f"borrows-{n}") for n in range(capacity)]
    orders = [Order(owners[n % 2], f"claims-{n}", gpus=CLAIM_GPUS) for n in range(2 * (quarter // CLAIM_GPUS))]
    return Load(Shares(tuple(teams), 4 * quarter, reclaims=True), tuple(before), tuple(orders), until_ended=False)


def _queue_releases(sizes: Sizes) -> Load:
    """Full nodes, where from a time on slots come free at a rate, and bare pods that wait for them."""
    slots = sizes.nodes * GPUS_PER_NODE
    shares = _three_teams(slots, sizes)
    begin = fill_seconds(sizes.jobs)
    before = [
        Order(team, f"first-{n}", seconds=begin + n / sizes.per_second, is_bare=True)
        for n, team in enumerate(_turns(shares.teams, slots))
    ]
    turns = _turns(shares.teams, sizes.jobs)
    later = slots / sizes.per_second
    orders = [Order(team, f"next-{n}", seconds=later, is_bare=True) for n, team in enumerate(turns)]
    return Load(shares, tuple(before), tuple(orders))


def fill_seconds(pods: int) -> float:
    """How long the first pods run at least: meanwhile so many are created to wait behind them."""
    return 15 + pods / 25


def _turns(teams: Sequence[Team], count: int) -> Iterator[Team]:
    """Yield the teams in turn, the larger shares first."""
    for number in range(count):
        yield teams[number % len(teams)]
