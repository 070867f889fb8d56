"""The systems that are compared: how each is run, and what its objects need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.side_by_side.fairgate import fairgate, mark_for_fairgate
from benchmarks.side_by_side.kueue import kueue, mark_for_kueue
from benchmarks.side_by_side.loads import Load, Order, Shares, Work
from benchmarks.side_by_side.volcano import mark_for_volcano, volcano
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import GPU
from tests.control_plane.versions import KUEUE, VOLCANO, Recipe


@dataclass(frozen=True, slots=True)
class System:
    """A system; `processes` are how the names of its processes begin, `cannot` says why it has no answer to a work."""

    name: str
    run: Callable[[ControlPlane, Shares], AbstractContextManager[None]]
    mark: Callable[[dict[str, Any], Order], None]
    processes: tuple[str, ...] = ()
    builds: Sequence[Recipe] = ()
    cannot: Mapping[Work, str] = field(default_factory=dict)

    def owns(self, process: str) -> bool:
        """Whether a process is part of the system itself."""
        return process.startswith(self.processes) if self.processes else False

    def manifest(self, order: Order) -> dict[str, Any]:
        """The object of an order as this system wants it."""
        made = order.manifest()
        self.mark(made, order)
        return made


@contextmanager
def stock(cluster: ControlPlane, shares: Shares) -> Iterator[None]:
    """Divide a limit over all teams by ResourceQuotas; without one, the nodes are the bound."""
    for team in shares.teams if shares.is_limit else ():
        quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": str(team.guaranteed)}}}
        cluster.api.create(f"/api/v1/namespaces/{team.name}/resourcequotas", quota)
    yield


def _unmarked(_made: dict[str, Any], _order: Order) -> None:
    """Leave an object as it is."""


SYSTEMS = {
    system.name: system
    for system in (
        System(
            "stock",
            stock,
            _unmarked,
            cannot={
                Work.GANGS: "starts the pods of a gang one by one",
                Work.DEPARTMENTS: "a ResourceQuota cannot be borrowed, so there is nothing to take back",
            },
        ),
        System("fairgate", fairgate, mark_for_fairgate, processes=("fairgate-", "evictor-")),
        System("kueue", kueue, mark_for_kueue, processes=("kueue",), builds=(KUEUE,)),
        System("volcano", volcano, mark_for_volcano, processes=("volcano-",), builds=(VOLCANO,)),
    )
}


def skipped(system: System, work: Work) -> str:
    """Why a system is not measured at a work; empty if it is."""
    return system.cannot.get(work, "")


def namespaces(load: Load) -> list[str]:
    """The namespaces of a load's teams."""
    return [team.name for team in load.shares.teams]
