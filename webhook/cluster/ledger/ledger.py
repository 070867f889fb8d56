"""The ledger on the API: one TeamLedger object per team, or per department with a limit, shared by all replicas."""

import asyncio
import random
from collections.abc import Callable, Container, Iterable
from typing import Final, NamedTuple, NoReturn

from webhook.cluster.api.client import ApiConnection, ClusterError, RestoredError
from webhook.cluster.api.requests import read_live_pod
from webhook.cluster.ledger.ledger_writer import ELSEWHERE, Asked, LedgerContext, LedgerRecorder, LedgerWriter
from webhook.cluster.watch.feed import live_quotas
from webhook.core.model.amounts import UNASSIGNED, TeamName, Uid
from webhook.core.model.decision import Decision, Deny, NotApplicable
from webhook.core.model.pod import Resident
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import InFlightCharge, LedgerDecision, QuotaIndex, exceeded
from webhook.core.world.ledger_homes import LedgerHomes
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.admission.reviews import Review
from webhook.kube.ledger.team_ledger import TeamLedger
from webhook.kube.watched.kinds import WatchedKind, ledger_kind

UNSEEN_SECONDS: Final = 40.0
"""When to read a charged pod that was not seen: kube-apiserver ends a request after 34 s, so it cannot come later."""

_ORPHAN_CHECK_SECONDS: Final = 5.0
"""Between two checks for such pods. With the above, an orphaned charge is gone in well under 90 s."""

_RECONCILE_SECONDS: Final = 1.0
"""Between two checks for outdated objects …"""

_MIN_WRITE_INTERVAL_SECONDS: Final = 2.0
"""… and the least time between two writes of one object that no request caused."""

UPDATES_AT_ONCE: Final = 30
"""Most such writes after one check, those first that were written longest ago: with a thousand busy teams they would
otherwise be as many as all other requests together."""

_CHECKED_AT_ONCE: Final = 50
"""Objects that are checked in one turn of the event loop."""

_MOVE_SECONDS: Final = 0.005
"""How often a charge is tried again while its team moves to another ledger, which takes two or three writes."""


class TeamState(NamedTuple):
    """A team's charges in flight, and by how many resourceVersions this replica's view of the pods lags behind."""

    team: TeamName
    in_flight: int
    lag: int


class ApiLedger:
    """Charges pods on TeamLedger objects; implements webhook.server.review.ledger_protocol.Ledger.

    `reached` returns the resourceVersion of the watched pods; `known` the UID of the pod that is named
    `NAMESPACE/NAME` among them: "" if it is not recorded, None if there is no such pod. `quotas` are the watched ones.
    `on_restored` receives the error if an object is older than it was: etcd was restored from a backup.
    """

    is_watched: Final = True

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        *,
        reached: Callable[[], int],
        recorder: LedgerRecorder,
        known: Callable[[str], str | None],
        on_restored: Callable[[RestoredError], None],
        quotas: QuotaIndex | None = None,
    ) -> None:
        self._world = world
        self._quotas = quotas or QuotaIndex()
        self._known = known
        self._homes = LedgerHomes(world, reached)
        self._context = LedgerContext(connection, world, reached, recorder, self._homes, self._wake, on_restored)
        self._writers: dict[TeamName, LedgerWriter] = {}

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Refuse from memory a pod that cannot be admitted; charge any other with its team's next write.

        Pods of exempt namespaces are never refused, so they do not wait for a write either: the watch charges them.
        """
        judged = judge()
        decision, flight, _ = judged
        if flight is None or (isinstance(decision, NotApplicable) and decision.reason.code is Code.EXEMPT):
            return decision
        if not flight.is_promotion and self._may_be_rejected(flight.pod):
            if (reason := await self._rejection(flight.pod)) is not None:
                return Deny((reason,))
            judged = judge()  # the world may have changed during the wait
        return await self._charge(flight.charge.team, Asked(judge, deadline, is_gone), judged)

    def enter_line(self, waiting: WaitingPod) -> None:
        """Count a pod that was let into its team's line until the watch shows it."""
        self._world.waiting.expect(waiting.uid, waiting.team, now=self._world.now)

    async def _charge(self, team: TeamName, asked: Asked, judged: LedgerDecision | None = None) -> Decision:
        """Charge a pod in the ledger of its team; again where that is another one meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            writer = self._writer(self._homes.ledger_of(team))
            decision = await writer.charge(asked, judged)
            if decision is not ELSEWHERE or loop.time() + _MOVE_SECONDS >= asked.deadline:
                return decision
            for ledger in self._homes.prepare_team(team):
                self._wake(ledger)
            await asyncio.sleep(_MOVE_SECONDS)
            judged = asked.judge()
            team = team if judged.flight is None else judged.flight.charge.team

    def _may_be_rejected(self, pod: Resident) -> bool:
        """Whether the API server will reject a pod after all, by what was last seen of names and ResourceQuotas."""
        is_taken = self._known(f"{pod.namespace}/{pod.name}") not in (None, pod.uid)
        return is_taken or exceeded(pod.demand, self._quotas.of(pod.namespace)) is not None

    async def _rejection(self, pod: Resident) -> Reason | None:
        """Return why the API server will reject a pod, so that it must not be charged.

        Another pod has its name, or a ResourceQuota has no room. What was seen may be outdated: the API server's
        current answer decides.
        """
        try:
            found = await read_live_pod(self._context.connection, pod)
            if found is not None and found.uid != pod.uid:
                return Reason(Code.ALREADY_EXISTS, 'pods "{pod}" already exists', {"pod": pod.name})
            has_quotas = bool(self._quotas.of(pod.namespace))
            quotas = await live_quotas(self._context.connection, pod.namespace) if has_quotas else ()
            return exceeded(pod.demand, quotas)
        except ClusterError:
            return None

    def release(self, review: Review) -> None:
        """Do nothing: the reviewed DELETE may still fail; the watch reports a deletion."""

    def withdraw(self, team: TeamName, uid: Uid, *, if_still: Callable[[], bool] = lambda: True) -> None:
        """Withdraw a charge or a promotion that will certainly not take effect; `if_still` is asked at each write."""
        for ledger in self._listing(team, uid) or (self._homes.ledger_of(team),):
            self._writer(ledger).withdraw(uid, if_still=if_still)

    def _listing(self, team: TeamName, uid: Uid) -> list[TeamName]:
        """Return the ledgers that list a charge, or may."""
        return [ledger for ledger in self._homes.holders(team) if self._homes.session(ledger).lists(uid)]

    def linger(self, flight: InFlightCharge) -> None:
        """Keep an assumed charge of a pod that its node may still run, for as long as that is possible."""
        self._writer(self._homes.ledger_of(flight.charge.team)).linger(flight)

    async def charge_waiting(
        self, team: TeamName, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Charge a pod that waits in the queue: it exists, so its name is its own and ResourceQuotas count it already.

        A charge that is written without an answer stays: another leader may be removing the gate because of it.
        """
        return await self._charge(team, Asked(judge, deadline, is_gone, is_kept=True))

    async def fence(self, team: TeamName, uid: Uid, *, since: float, deadline: float) -> bool:
        """Return whether the objects that list a charge were written here since a loop time; write them if not.

        After that no other process can end the charge by a write that it began before.
        """
        writers = map(self._writer, self._listing(team, uid))
        return all([await writer.fence(since=since, deadline=deadline) for writer in writers])

    def shows_gang_of(self, reservation: InFlightCharge) -> bool:
        """Whether this replica has seen the gang for which room is kept: only then does a missing one say much."""
        uid, reached = reservation.pod.uid, self._context.reached()
        listing = map(self._homes.session, self._listing(reservation.charge.team, uid))
        return all(session.shows_gang_of(uid, reached) for session in listing)

    def charged(self, among: Container[Uid]) -> Iterable[InFlightCharge]:
        """Return the charges, of all replicas, of those of these pods that were not seen to use anything yet."""
        return [flight for session in map(self._homes.session, self._writers) for flight in session.pending(among)]

    def listed(self, team: TeamName, uid: Uid) -> InFlightCharge | None:
        """Return the charge of a pod that an object lists, as it was last read; None where none does."""
        flights = (self._homes.session(ledger).record.flights.get(uid) for ledger in self._homes.holders(team))
        return next((flight for flight in flights if flight is not None), None)

    def promotions(self) -> Iterable[InFlightCharge]:
        """Return the charged promotions of all replicas whose labels are not written yet."""
        return [flight for session in map(self._homes.session, self._writers) for flight in session.promotions()]

    # -- the watch of TeamLedgers

    def kind(self) -> WatchedKind[TeamLedger]:
        """Return how to watch TeamLedgers."""
        return ledger_kind(lambda found: self._writer(found.team).observe(found), remove=self._forget)

    def _forget(self, identity: str) -> None:
        for writer in self._writers.values():
            writer.forget(identity)

    # -- tasks of one replica; harmless in several, since each write is a compare-and-swap and based on evidence

    async def drop_orphans(
        self,
        *,
        is_leader: Callable[[], bool],
        report: Callable[[InFlightCharge], None],
        unseen_seconds: float = UNSEEN_SECONDS,
    ) -> NoReturn:
        """Drop charges whose pods were never created, after a live read, and report each."""
        while True:
            await asyncio.sleep(min(_ORPHAN_CHECK_SECONDS, unseen_seconds))
            for writer in [*self._writers.values()] if is_leader() else []:
                try:
                    async for flight in writer.drop_orphans(unseen_seconds):
                        report(flight)
                except ClusterError as error:
                    writer.problem = str(error)

    async def reconcile(self, *, is_leader: Callable[[], bool]) -> NoReturn:
        """Update every outdated object while no request does: remove charges of confirmed pods, update the status."""
        while True:
            await asyncio.sleep(random.uniform(1, 2) * _RECONCILE_SECONDS)  # noqa: S311 - jitter
            for writer in self._writers.values():
                writer.drop_released()
                if is_leader():
                    writer.write_lingering()
            if is_leader():
                for ledger in (*(team.name for team in self._world.policy.teams), *self._homes.wanted()):
                    self._writer(ledger)
                for ledger in self._homes.tidy(asyncio.get_running_loop().time()):
                    self._wake(ledger)
                await self._update_outdated()

    async def _update_outdated(self) -> None:
        updates = 0
        for number, writer in enumerate(sorted(self._writers.values(), key=lambda each: each.wrote_at)):
            if number % _CHECKED_AT_ONCE == _CHECKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            updates += await self._update_if_outdated(writer)
            if updates == UPDATES_AT_ONCE:
                return

    async def _update_if_outdated(self, writer: LedgerWriter) -> bool:
        """Update an object if that is due; return whether it is written."""
        may_write = asyncio.get_running_loop().time() - writer.wrote_at >= _MIN_WRITE_INTERVAL_SECONDS
        if not (writer.is_idle and writer.is_current and may_write):
            return False
        is_in_policy = (
            writer.team == UNASSIGNED
            or self._world.policy.team(writer.team) is not None
            or self._homes.is_needed(writer.team)
        )
        if not is_in_policy and not writer.in_flight and not writer.lingering:
            if writer.version:
                await writer.remove()
            else:
                del self._writers[writer.team]
                self._homes.drop(writer.team)
        elif writer.is_outdated and (is_in_policy or writer.version):
            writer.refresh()
            return True
        return False

    # -- metrics and shutdown

    def states(self) -> Iterable[TeamState]:
        """Return the state of each team's object."""
        return [TeamState(writer.team, writer.in_flight, writer.lag) for writer in self._writers.values()]

    async def close(self) -> None:
        """Stop every writer."""
        await asyncio.gather(*(writer.close() for writer in self._writers.values()))

    def _wake(self, ledger: TeamName) -> None:
        self._writer(ledger).wake()

    def _writer(self, team: TeamName) -> LedgerWriter:
        writer = self._writers.get(team)
        if writer is None:
            writer = self._writers[team] = LedgerWriter(team, self._context)
        return writer
