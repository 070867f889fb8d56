"""Loans that are not made: a borrowing task waits while its room is to be taken back before it would have ended.

Put between a simulation and the decisions of the core: what they would start is judged once more here. A task that is
held keeps no other one waiting.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from benchmarks.loans_parts.knowledge import CELL_SECONDS, CELLS, LearnedReturns, TrueReturns, gpus_of
from webhook.addons.simulation import engine
from webhook.addons.simulation.engine import Simulation
from webhook.core.admission.admission import admit
from webhook.core.line.entries import Fits, Never, QueueEntry, Verdict, Way
from webhook.core.line.judged_gang import EntryJudge
from webhook.core.model.amounts import ONE_GPU, NodeName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Decision, Queue
from webhook.core.model.pod import Pod, Requester
from webhook.core.model.reasons import Code, Reason
from webhook.core.starting import starts
from webhook.core.world.world import World

LOOK_SECONDS = 900
SMALL = 1e-9


class Holds:
    """Says which borrowing pods wait. A pod that was held for `patience_seconds` starts like any other."""

    def __init__(
        self,
        simulation: Simulation,
        run_times: Mapping[str, int],
        returns: TrueReturns | LearnedReturns,
        *,
        gpus: float,
        patience_seconds: int,
    ) -> None:
        self.held: dict[Uid, int] = {}
        self._run_times = run_times
        self._returns = returns
        self._gpus = gpus
        self._patience_seconds = patience_seconds
        self._simulation = simulation
        self._starting: dict[str, float] = {}  # what starts in the present pass
        self._known: tuple[tuple[float, ...], list[float]] = (), []

    def look(self) -> None:
        """Note the present moment, and look again later while pods wait."""
        simulation = self._simulation
        if isinstance(self._returns, LearnedReturns):
            self._returns.note(simulation.world)
        if len(simulation.world.waiting):
            simulation.look_at((simulation.now // LOOK_SECONDS + 1) * LOOK_SECONDS)

    def has(self, pod: Pod, world: World) -> bool:
        """Whether a borrowing pod that could start waits."""
        seconds, gpus, now = self._run_times[pod.name], pod.demand.gpus / ONE_GPU, world.now
        free = self._free(world)
        is_late = now - self.held.get(pod.uid, now) >= self._patience_seconds
        if is_late or not free or free[min(seconds // CELL_SECONDS, len(free) - 1)] >= gpus - SMALL:
            self._starting[pod.name] = gpus
            return False
        self.held.setdefault(pod.uid, now)
        return True

    def _free(self, world: World) -> list[float]:
        """Return what is never less than free until each coming cell; nothing where returns are not known."""
        owners = self._returns.ahead(world)
        if not owners:
            return []
        if self._known[0][:1] != (world.now,):
            self._starting.clear()
        state = (world.now, self._simulation.cluster.version, len(self._starting), owners[0])
        if self._known[0] != state:
            self._known = state, self._found_free(owners, world)
        return self._known[1]

    def _found_free(self, owners: Sequence[float], world: World) -> list[float]:
        ends = [0.0] * (CELLS + 1)
        for pod_of in self._simulation.cluster.pods.values():
            resident, task = pod_of.resident, pod_of.record.task
            self._starting.pop(task.name, None)
            if resident is not None and resident.tier is Tier.PREEMPTIBLE:
                age = 0 if pod_of.since is None else world.now - pod_of.since
                ends[self._last_cell(task.name, age)] += gpus_of(task)
        for name, gpus in self._starting.items():
            ends[self._last_cell(name, 0)] += gpus
        borrowed = sum(ends)
        found, least = [], self._gpus
        for cell in range(CELLS):
            borrowed -= ends[cell]
            least = min(least, self._gpus - owners[min(cell, len(owners) - 1)] - borrowed)
            found.append(least)
        return found

    def _last_cell(self, name: str, age: int) -> int:
        """Return by when a task has ended: one that runs for longer than expected runs as long again."""
        left = self._run_times[name] - age
        return min(CELLS, (left if left > 0 else age) // CELL_SECONDS + 1)


@contextmanager
def held_back(holds: Holds) -> Iterator[None]:
    """Have the line of a simulation ask the holds; what would start at the door joins the line first."""

    class Judge(EntryJudge):
        def __call__(self, entry: QueueEntry, *, way: Way, kept: frozenset[NodeName]) -> Verdict:
            verdict = super().__call__(entry, way=way, kept=kept)
            judged = self.judged.get(entry.pods[0].uid)
            if judged is None or not (isinstance(verdict, Fits) and _borrows(judged.decision)):
                return verdict
            if not holds.has(judged.waiting.pod, self._world):
                return verdict
            self.judged[entry.pods[0].uid] = judged._replace(verdict=Never(), reason=_HELD)
            return Never()

    with patch.object(starts, "EntryJudge", Judge), patch.object(engine, "admit", _in_line(admit)):
        yield


_HELD = Reason(Code.WAITS_IN_LINE, "its room is expected to be taken back before it ends")


def _borrows(decision: Decision) -> bool:
    return isinstance(decision, Admit) and decision.charge.tier is Tier.PREEMPTIBLE


def _in_line(decide: Callable[[Pod, Requester, World], Decision]) -> Callable[[Pod, Requester, World], Decision]:
    def decided(pod: Pod, requester: Requester, world: World) -> Decision:
        decision = decide(pod, requester, world)
        if isinstance(decision, Admit) and _borrows(decision):
            charge = decision.charge
            return Queue(charge.team, decision.demand, _HELD, decision.policy_hash, user=charge.user)
        return decision

    return decided
