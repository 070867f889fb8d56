"""The workloads that are to keep some replicas, as rows: how many they have, and how many of these may go. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from webhook.core.model.names import Namespace, TeamName, WorkloadName
from webhook.core.model.text import natural_sort_key
from webhook.core.world.minimums import Replicas
from webhook.core.world.world import World


class MinimumRow(NamedTuple):
    """A workload with a minimum, as `namespace/Kind/name`, and its replicas."""

    workload: WorkloadName
    team: TeamName
    replicas: Replicas


def _everything(_namespace: Namespace) -> bool:
    return True


def minimum_rows(world: World, *, sees: Callable[[Namespace], bool] = _everything) -> list[MinimumRow]:
    """Return the workloads with a minimum in the namespaces that are seen: those below it first, then by name."""
    rows = (row for row in _rows(world) if sees(Namespace(row.workload.partition("/")[0])))
    return sorted(rows, key=lambda row: (not row.replicas.is_below, natural_sort_key(row.workload)))


def workloads_below(world: World) -> Counter[TeamName]:
    """Return how many workloads of each team have fewer pods ready than their minimum."""
    return Counter(row.team for row in _rows(world) if row.replicas.is_below)


def minimums_text(world: World) -> str:
    """Return how many workloads have a minimum, are below it, and have one that counts for nothing; "" for none.

    It names teams alone: who reads it may not know the names of workloads.
    """
    teams, below, useless = Counter[TeamName](), Counter[TeamName](), Counter[TeamName]()
    for _, team, replicas in _rows(world):
        teams[team] += 1
        if replicas.is_below:
            below[team] += 1
        if not replicas.has_surplus:
            useless[team] += 1
    parts = [f"{teams.total()} with a minimum"]
    if below:
        parts.append(f"{below.total()} below it ({_teams(below)})")
    if useless:
        parts.append(f"{useless.total()} with no more pods than that, which counts for nothing ({_teams(useless)})")
    return "workloads: " + "; ".join(parts) if teams else ""


def _rows(world: World) -> Iterator[MinimumRow]:
    """Yield the workloads whose replicas are of use one by one: gangs say how many start, and may end one by one."""
    for workload in world.minimums.workloads():
        if (replicas := world.minimums.of(workload)) is not None and not replicas.is_gang:
            yield MinimumRow(workload, world.tenancy(Namespace(workload.partition("/")[0])).team_name, replicas)


def _teams(counts: Counter[TeamName]) -> str:
    return ", ".join(f"{team} {count}" for team, count in sorted(counts.items()))
