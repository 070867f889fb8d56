"""From the rows of a trace to the pods of a simulation: their teams, namespaces, gangs and demands in a world."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.core.model.gang import MAX_MEMBERS, Gang
from webhook.core.model.names import GangId, Namespace, TeamName, User
from webhook.core.model.pod import Pod
from webhook.core.model.policy import Policy
from webhook.core.model.text import printable, shortened
from webhook.core.world.world import World
from webhook.simulation.simulate import under_policy
from webhook.simulation.task import Task
from webhook.simulation.traces.row import Row, TraceError
from webhook.simulation.traces.site import Site
from webhook.simulation.traces.table import MAX_PROBLEMS

ORIGIN: Final = 1_700_000_000
"""When simulated time begins, in seconds of Unix time: a trace may begin at 0, which means unknown in the core."""

_LONGEST: Final = 60


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
            gang = shortened(printable(row.gang), _LONGEST)
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
        pods, gpus = row.pods, row.gpus
        if row.is_job and gpus > self._site.largest:
            pods = min(MAX_MEMBERS, -(-gpus // self._site.largest))
            gpus = -(-gpus // pods)
        gang = self._gang(row, namespace, pods)
        models = tuple(model for model in row.models if model in self._site.models)
        pod = Pod(
            namespace,
            self._site.demand(row, gpus=gpus, pods=pods if row.is_job else 1, world=self._world),
            constraints=self._site.constraints(models),
            tier_label=None if row.tier is None else str(row.tier),
            gang=gang,
        )
        for number in range(pods):
            name = row.name if pods == 1 else f"{row.name}-{number}"
            created = row.created + self._shift
            yield Task(name, pod._replace(name=name), team, created, row.seconds, user=user, priority=row.priority)

    def _gang(self, row: Row, namespace: Namespace, pods: int) -> Gang | None:
        """Return the gang of a row's pods; what starts together waits in line until all of it has come."""
        if not row.gang and pods == 1:
            return None
        name = row.gang or row.name
        size = self._gang_sizes[row.gang] if row.gang else pods
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
    return shortened(printable(text), _LONGEST)
