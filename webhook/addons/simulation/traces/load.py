"""Tasks and synthetic loads.

Random loads: pods that come at random and ask, on average, for a given part of a cluster's GPUs.

Arrivals are independent of each other (exponential gaps). Sizes come from a mix, or from the rows of a trace, with
their run times. Other run times are log-normal: most are short, and a few are many times the mean.
"""

import csv
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.addons.simulation.task import Task
from webhook.addons.simulation.traces.formats import (
    COLUMNS,
    MAX_GPUS,
    MAX_ROWS,
    MAX_SECONDS,
    TIMES,
    Cells,
    Row,
    Site,
    TraceError,
    TraceRows,
    row_of,
)
from webhook.core.model.amounts import GangId, Namespace, TeamName, User, printable, shortened
from webhook.core.model.constraints import MAX_MEMBERS, Gang
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.world.world import World
from webhook.kube.admission.templates import under_policy

DEFAULT_MIX: Final = "1:50,2:20,4:15,8:15"
SPREAD: Final = 1.0
"""The standard deviation of the logarithm of run times: a tenth of them are more than twice the mean."""

_PARTS: Final = 1000


class Size(NamedTuple):
    """A size of the mix: GPUs of each pod, pods that start together, and how often it comes beside the others."""

    gpus: int
    pods: int
    weight: float


def parse_mix(text: str) -> tuple[Size, ...]:
    """Parse sizes with weights: `1:50,8:20,4x8:5` (the last is four pods of eight GPUs). Raises ValueError."""
    found = []
    for part in text.split(","):
        size, _, weight = part.strip().partition(":")
        pods, _, gpus = size.rpartition("x")
        try:
            each = Size(int(gpus), int(pods or 1), float(weight or 1))
        except ValueError:
            raise ValueError(f"got {part.strip()[:40]!r}; expected GPUS:WEIGHT or PODSxGPUS:WEIGHT") from None
        if not (0 < each.gpus <= MAX_GPUS and 0 < each.pods <= MAX_GPUS and 0 < each.weight < math.inf):
            raise ValueError(f"{part.strip()[:40]!r}: numbers are above 0, those of GPUs at most {MAX_GPUS:,}")
        found.append(each)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Load:
    """What comes: so many GPUs are asked for on average as `part` of the `gpus` there are, for `seconds`.

    Sizes are those of `rows` where there are any, else of `mix`; `run_seconds` is the mean run time of sizes without
    their own.
    """

    part: float
    gpus: float
    seconds: int
    run_seconds: int
    mix: tuple[Size, ...]
    rows: tuple[Row, ...] = ()


def drawn(load: Load, *, seed: int) -> list[Row]:
    """Draw the tasks of a load. Raises TraceError where there would be too many, or where they ask for no GPUs."""
    dice = random.Random(seed)  # noqa: S311 - a load, not a secret
    has_times = any(row.gpus and row.seconds for row in load.rows)
    sizes = [row for row in load.rows if row.gpus and (row.seconds or not has_times)] or _of_mix(load.mix)
    weights = [1.0] * len(sizes) if load.rows else [size.weight for size in load.mix]
    area = _mean([_gpus(row) * (row.seconds if has_times else load.run_seconds) for row in sizes], weights)
    if not area or not load.gpus:
        raise TraceError("the load asks for no GPUs, or the world has none")
    rate = load.part * load.gpus / area
    if rate * load.seconds > MAX_ROWS:
        raise TraceError(f"the load has about {rate * load.seconds:,.0f} tasks; at most {MAX_ROWS:,} are simulated")
    return list(_arrivals(load, sizes, weights, rate, dice, has_times=has_times))


def _of_mix(mix: tuple[Size, ...]) -> list[Row]:
    return [Row(0, "", size.gpus, 0, 0, pods=size.pods) for size in mix]


def _arrivals(
    load: Load, sizes: Sequence[Row], weights: Sequence[float], rate: float, dice: random.Random, *, has_times: bool
) -> Iterator[Row]:
    at, number = 0.0, 0
    while (at := at + dice.expovariate(rate)) < load.seconds:
        number += 1
        row = dice.choices(sizes, weights)[0]
        seconds = row.seconds if has_times else _run_time(load.run_seconds, dice)
        pod = None if row.pod is None else row.pod._replace(gang=None)
        yield row._replace(line=number, name=f"task-{number}", created=int(at), seconds=seconds, gang="", pod=pod)


def _run_time(mean: int, dice: random.Random) -> int:
    return min(MAX_SECONDS, max(1, round(dice.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD))))


def _gpus(row: Row) -> float:
    return row.gpus * row.pods * row.milli / _PARTS


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total else 0.0


# Reads a table of tasks (CSV) with a header. Problems have their line.


MAX_PROBLEMS: Final = 20
"""Problems that are reported of a trace."""

_LONGEST_CELL: Final = 200
_NO_TIMES: Final = "tasks without a run time"


def read_trace(lines: Iterable[str], *, name: str, needs_times: bool = True) -> TraceRows:
    """Read a trace; without `needs_times` it may have none. Raises TraceError with all problems, at most twenty."""
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = [column.strip().lstrip("\ufeff") for column in reader.fieldnames or ()]
        reader.fieldnames = columns
        _check_columns(columns, name, needs_times=needs_times)
        rows = list(_rows(reader, name, needs_times=needs_times))
    except csv.Error as error:
        raise TraceError(f"{name}:{reader.line_num + 1}: not a table: {error}") from error
    if not rows:
        raise TraceError(f"{name}: has no task; expected a header and a line for each task")
    timed = [row for row in rows if row.seconds]
    if needs_times or not timed:
        return TraceRows(rows, {})
    untimed = sum(1 for row in rows if row.gpus and not row.seconds)
    return TraceRows(timed, {_NO_TIMES: untimed} if untimed else {})


def _check_columns(columns: Sequence[str], name: str, *, needs_times: bool) -> None:
    if not any(columns):
        raise TraceError(f"{name}: is empty; expected a header and a line for each task")
    missing = [column for column in COLUMNS + (TIMES if needs_times else ()) if column not in columns]
    if missing:
        found = shortened(printable(", ".join(columns)), _LONGEST_CELL)
        advice = "" if set(missing) - set(TIMES) else "; or --load, which draws the times"
        raise TraceError(f"{name}:1: columns are missing: {', '.join(missing)}; found {found}{advice}")


def _rows(reader: "csv.DictReader[str]", name: str, *, needs_times: bool) -> Iterator[Row]:
    problems: list[str] = []
    for number, cells_of in enumerate(reader):
        line = reader.line_num
        if number >= MAX_ROWS:
            raise TraceError(f"{name}:{line}: more than {MAX_ROWS:,} tasks; cut the trace first")
        if None in cells_of:
            problems.append(f"{name}:{line}: has more cells than the header")
        cells = Cells(cells_of)
        row = row_of(cells, line)
        missing = [column for column in TIMES if needs_times and not cells.text(column)]
        if missing:
            wanted = "expected seconds or a date, or --load, which draws times"
            cells.problems.append(f"{' and '.join(missing)}: got nothing; {wanted}")
        problems += [f"{name}:{line}: {problem}" for problem in cells.problems]
        if len(problems) > MAX_PROBLEMS:
            break
        if not cells.problems:
            yield row
    if problems:
        more = ["and maybe more"] if len(problems) > MAX_PROBLEMS else []
        raise TraceError(*problems[:MAX_PROBLEMS], *(f"{name}: {each}" for each in more))


# From the rows of a trace to the pods of a simulation: their teams, namespaces, gangs and demands in a world.


ORIGIN: Final = 1_700_000_000
"""When simulated time begins, in seconds of Unix time: a trace may begin at 0, which means unknown in the core."""

_LONGEST_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows become pods: `origin` is the time of the first; `teams` renames teams of the trace.

    `is_dealt`: the trace's own teams do not count. Rows without a team are dealt to teams at random by the seed, in
    proportion to `weights`; without any, to the guaranteed shares of the policy's teams.
    """

    name: str
    origin: int = ORIGIN
    seed: int = 0
    teams: Mapping[str, str] = field(default_factory=dict)
    is_dealt: bool = False
    weights: Mapping[TeamName, int] = field(default_factory=dict)


def shares_of(policy: Policy) -> dict[TeamName, int]:
    """Return the guaranteed shares by which rows without a team are dealt."""
    return {team.name: team.gpus.guaranteed for team in policy.teams}


def tasks_of(rows: Sequence[Row], world: World, reading: Reading) -> list[Task]:
    """Return the tasks of a trace in the order in which they come. Raises TraceError with all problems."""
    site = Site.of(world)
    if site is None:
        raise TraceError("the world has no node with GPUs")
    problems = list(_gang_problems(rows, reading.name))
    maker = _TaskMaker(rows, world, site, reading)
    found: list[Task] = []
    for row in sorted(rows, key=lambda each: (each.created, each.line)):
        row_problems = maker.problems_of(row)
        problems += [f"{reading.name}:{row.line}: {each}" for each in row_problems]
        if len(problems) > MAX_PROBLEMS:
            break
        if not problems:
            found.extend(maker.tasks(row))
    if problems:
        raise TraceError(*problems[:MAX_PROBLEMS])
    return found


def _gang_problems(rows: Iterable[Row], name: str) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        if not row.gang or row.pod is not None:
            continue
        counts[row.gang] += row.pods
        if counts[row.gang] > MAX_MEMBERS:
            gang = shortened(printable(row.gang), _LONGEST_NAME)
            yield f"{name}:{row.line}: gang {gang} has more than {MAX_MEMBERS} members; so many start together at most"
            return


class _TaskMaker:
    def __init__(self, rows: Sequence[Row], world: World, site: Site, reading: Reading) -> None:
        self._world = world
        self._site = site
        self._reading = reading
        self._dice = random.Random(reading.seed)  # noqa: S311 - a load, not a secret
        self._shift = reading.origin - min((row.created for row in rows), default=0)
        self._gang_sizes = Counter[str]()
        for row in rows:
            self._gang_sizes[row.gang] += row.pods
        self._namespaces: dict[TeamName, Namespace | None] = {}
        self._weights = reading.weights or shares_of(world.policy)
        self._team_of_gang: dict[str, TeamName] = {}

    def problems_of(self, row: Row) -> Iterator[str]:
        """Yield why a row cannot become pods in this world."""
        if row.pod is None:
            yield from self._model_problems(row)
        if not self._world.policy.teams:
            yield "the policy has no team"
        elif self._keeps_namespace(row):
            if row.pod is None and self._world.tenancy(Namespace(row.namespace)).team is None:
                yield f"namespace {_shown(row.namespace)} belongs to no team of the policy"
        elif row.team and not self._reading.is_dealt:
            name = self._reading.teams.get(row.team, row.team)
            if self._world.policy.team(TeamName(name)) is None:
                teams = ", ".join(team.name for team in self._world.policy.teams)
                yield f"unknown team {_shown(name)}; teams of the policy: {teams} (--rename-team, --deal-teams)"
            elif self._namespace_of(TeamName(name)) is None:
                yield f"team {name} is found by labels of namespaces alone; give the namespace instead of the team"

    def _model_problems(self, row: Row) -> Iterator[str]:
        unknown = [model for model in row.models if model not in self._site.models]
        if unknown and len(unknown) == len(row.models):
            there = ", ".join(sorted(self._site.models)) or "none"
            yield f"no node has GPU model {_shown(', '.join(unknown))}; models of the world: {there}"

    def _keeps_namespace(self, row: Row) -> bool:
        """Whether a row comes to the namespace that it names."""
        return bool(row.namespace) and not self._reading.is_dealt and row.team not in self._reading.teams

    def tasks(self, row: Row) -> Iterator[Task]:
        """Yield the pods of a row."""
        team, namespace = self._home(row)
        user = User(row.user) if row.user else None
        if row.pod is not None:
            pod = under_policy(row.pod._replace(namespace=namespace), self._world.policy)
            yield Task(row.name, pod, team, row.created + self._shift, row.seconds, user=user, priority=row.priority)
            return
        gang = self._gang(row, namespace)
        models = tuple(model for model in row.models if model in self._site.models)
        pod = Pod(
            namespace,
            self._site.demand(row, self._world),
            constraints=self._site.constraints(models),
            tier_label=None if row.tier is None else str(row.tier),
            gang=gang,
        )
        for number in range(row.pods):
            name = row.name if row.pods == 1 else f"{row.name}-{number}"
            created = row.created + self._shift
            yield Task(name, pod._replace(name=name), team, created, row.seconds, user=user, priority=row.priority)

    def _gang(self, row: Row, namespace: Namespace) -> Gang | None:
        """Return the gang of a row's pods; what starts together waits in the queue until all of it has come."""
        if not row.gang and row.pods == 1:
            return None
        name = row.gang or row.name
        size = self._gang_sizes[row.gang] if row.gang else row.pods
        return Gang(GangId(f"{namespace}/{name}"), name, size, is_requested=True)

    def _home(self, row: Row) -> tuple[TeamName, Namespace]:
        if self._keeps_namespace(row):
            namespace = Namespace(row.namespace)
            return self._world.tenancy(namespace).team_name, namespace
        team = TeamName(self._reading.teams.get(row.team, row.team))
        if not row.team or self._reading.is_dealt:
            team = self._team_of_gang.get(row.gang) or self._dealt()
            if row.gang:
                self._team_of_gang[row.gang] = team
        return team, self._namespace_of(team) or Namespace(team)

    def _dealt(self) -> TeamName:
        able = {team: weight for team, weight in self._weights.items() if self._namespace_of(team) is not None}
        if not any(able.values()):
            able = dict.fromkeys(able or self._weights, 1)
        return self._dice.choices(list(able), list(able.values()))[0]

    def _namespace_of(self, team: TeamName) -> Namespace | None:
        """Return a namespace of a team, by its names and globs, or one that the world has; None where there is none."""
        if team not in self._namespaces:
            known = self._world.policy.team(team)
            names = [] if known is None else [Namespace(each.replace("*", "simulated")) for each in known.namespaces]
            names += sorted(each.name for each in self._world.namespaces())
            mine = (name for name in names if self._world.tenancy(name).team_name == team)
            self._namespaces[team] = next(mine, None)
        return self._namespaces[team]


def _shown(text: str) -> str:
    return shortened(printable(text), _LONGEST_NAME)
