"""Batches of one ledger.

For how long this process has known each charge of a ledger, by its own clock.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from webhook.cluster.api.client import ApiConnection, ClusterError, RestoredError
from webhook.cluster.ledger.ledger_objects import Result, TeamLedgerClient, WriteFence, WritePace, result_of
from webhook.core.explain.team_rows import DepartmentRow, TeamRow, ledger_row
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.decision import Decision, Retry
from webhook.core.model.pod import NO_UID
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import ENDED, InFlightCharge, LedgerDecision
from webhook.core.quota.limits import MOST_LINGERING
from webhook.core.quota.usage import department_of
from webhook.core.world.ledger_homes import LedgerHomes
from webhook.core.world.ledger_session import LedgerSession
from webhook.core.world.world import World
from webhook.kube.ledger import team_ledger
from webhook.kube.ledger.team_ledger import TeamLedger


class ChargeAges:
    """When each charge was first seen; `clock` is the event loop's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._first_seen: dict[Uid, float] = {}

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._first_seen

    def keep(self, uids: Iterable[Uid]) -> None:
        """Set which charges there are: the others are forgotten, and new ones are first seen now."""
        now = self._clock()
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in uids}

    def begin(self, uid: Uid) -> None:
        """See a charge for the first time now."""
        self._first_seen[uid] = self._clock()

    def is_late(self, flight: InFlightCharge, unseen_seconds: float = 0.0) -> bool:
        """Return whether it is too late for a charge's pod to appear, or to linger.

        Room that is kept for a pod gets so long besides: the leader's start loop ends it in its time, and reports that.
        """
        now = self._clock()
        grace = unseen_seconds if flight.until else 0.0
        return now - self._first_seen.get(flight.pod.uid, now) > (flight.lingers or unseen_seconds) + grace


# What the ledger writers of all teams share.


class LedgerRecorder(Protocol):
    """Records what the ledger does, for metrics."""

    def wrote(self, result: str, *, charges: int, seconds: float) -> None:
        """Record a write, its number of charges and its duration."""

    def waited(self, seconds: float) -> None:
        """Record that charges waited for the watched pods to catch up with the ledger."""

    def withdrew(self) -> None:
        """Record a charge that is withdrawn because its caller disconnected."""


class LedgerContext(NamedTuple):
    """The connection, the world, the resourceVersion that its pods have reached, the recorder, and all ledgers.

    `wake` has the writer of another ledger write what is to be changed there; `on_restored` receives that etcd was.
    """

    connection: ApiConnection
    world: World
    reached: Callable[[], int]
    recorder: LedgerRecorder
    homes: LedgerHomes
    wake: Callable[[TeamName], None]
    on_restored: Callable[[RestoredError], None]


# Requests that wait for a ledger's writer.


LedgerJudge = Callable[[], LedgerDecision]
"""Decides a request on the present world."""


class Asked(NamedTuple):
    """What a caller asks for, and until which time of the event loop; `is_gone` returns whether it has left.

    `is_kept`: the charge stays although the caller no longer waits, for the leader of then to use or end.
    """

    judge: LedgerJudge
    deadline: float
    is_gone: Callable[[], bool]
    is_kept: bool = False


@dataclass(slots=True, eq=False)
class LedgerRequest:
    """A request that waits for its answer.

    `admitted` is the decision with which a charge was drafted, and `charged` the UID that it is for. `is_sent`: it was
    written, or may have been.
    """

    asked: Asked
    answer: "asyncio.Future[Decision]"
    admitted: Decision | None = None
    charged: Uid = NO_UID
    is_sent: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the request was answered or cancelled."""
        return self.answer.done()


# One ledger's writer, of a team or of the teams of a department.
#
# A request is decided when it comes, and its charge is assumed in the world: there is no await between the two, and on
# one event loop that is the lock. The charges of all waiting requests are stored with one write, a compare-and-swap on
# the object's resourceVersion. What another replica's write precedes is decided again, and so is what came without a
# current view, or while two charges were for pods of one name.


_POLL_SECONDS: Final = 0.002
"""How often a lagging view of the pods is checked again: the missing event is on its way."""

MAX_CHARGES: Final = 500
"""Most charges in one write, so that it stays small and fast; halved while the API server rejects it as too large."""

_log: Final = logging.getLogger("webhook.cluster.ledger.ledger")
ELSEWHERE: Final = Retry(Reason(Code.RACE_LOST, "the ledger of the pod's team is being moved: try again"))
"""The answer to a request of a team whose charges go to another ledger: it is to be made there."""

_FULL: Final = "team {team} fills its ledger with charges of pods that were not seen yet or are gone: try again"

_DISCONNECTED: Final = Retry(Reason(Code.RACE_LOST, "the caller disconnected before the pod was charged: try again"))


class LedgerWriter:
    """Writes the charges of one ledger; writers are independent, so no team waits for one with another ledger."""

    def __init__(self, team: TeamName, context: LedgerContext) -> None:
        self.team = team
        self.problem: str | None = None
        self.wrote_at = 0.0
        self._fence = WriteFence()
        self._pace = WritePace()
        self._context = context
        self._session: LedgerSession = context.homes.session(team)
        self._reader = team_ledger.RecordReader()
        self._client = TeamLedgerClient(context.connection, team)
        self._status: team_ledger.Status | None = None  # as on the API
        self.lingering: dict[Uid, InFlightCharge] = {}  # found by this replica, and not in the object yet
        self._max_charges = MAX_CHARGES
        self._allowed: set[Uid] = set()  # charges in the object whose request was allowed
        self._waiting: list[LedgerRequest] = []
        self._policy = context.world.policy  # of the drafted charges
        self._is_due = False
        self._is_writing = False
        self._work: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._ages = ChargeAges(self._loop.time)

    # -- requests and watch events

    async def charge(self, asked: Asked, judged: LedgerDecision | None = None) -> Decision:
        """Charge a pod with the next write, unless it is refused; returns by the deadline in any case.

        `judged` is what was decided just now, if anything was.
        """
        request = LedgerRequest(asked, self._loop.create_future())
        if self.is_safe and self._session.is_settled and len(self._session.drafts) < self._max_charges:
            self._draft(request, judged or asked.judge())
        if request.is_over:
            return request.answer.result()
        self._waiting.append(request)
        self.wake()
        timer = self._loop.call_at(asked.deadline, self._give_up, request)  # a fifth of what asyncio.timeout costs
        try:
            return await request.answer
        finally:
            timer.cancel()

    def observe(self, found: TeamLedger) -> None:
        """Store the team's object as the watch, an own write or a live read returned it."""
        if found.version > self._session.version:
            self._status = found.status
            if not self._is_writing:
                self._pace.saw_rival()
        is_known = found.version == self._session.version
        record = self._session.record if is_known else self._reader.read(found)
        self._session.see(record, version=found.version, identity=found.metadata.uid)
        flights = self._session.record.flights
        self.lingering = {uid: flight for uid, flight in self.lingering.items() if uid not in flights}
        listed = (*flights, *self.lingering)
        self._ages.keep(listed)
        self._allowed.intersection_update(listed)
        self.drop_released()

    def forget(self, identity: str) -> None:
        """Forget the object if it is the one of this identity: it was deleted."""
        if self._session.identity == identity:
            self._session.lose()
            self._status = None

    def drop_released(self) -> None:
        """Drop charges that left the object, if the watched pods have caught up, and expired lingering charges."""
        self._session.drop_released(self._context.reached())
        for uid in [uid for uid, flight in self.lingering.items() if self._ages.is_late(flight)]:
            del self.lingering[uid]
            self._context.world.drop_reservation(uid)

    def linger(self, flight: InFlightCharge) -> None:
        """Keep an assumed charge for as long as its pod may still run on its node."""
        if flight.pod.uid not in self._session.record.flights:
            self.lingering[flight.pod.uid] = flight
            self._ages.begin(flight.pod.uid)

    def write_lingering(self) -> None:
        """Write lingering charges to the object soon, so that other replicas and later ones count them."""
        self._session.carry_left(self.lingering.values(), most=MOST_LINGERING)
        if self.lingering:
            self.wake()

    def withdraw(self, uid: Uid, *, if_still: Callable[[], bool]) -> None:
        """Remove a charge from the object soon, unless its pod exists."""
        self._session.withdraw(uid, if_still=if_still)
        self.wake()

    async def fence(self, *, since: float, deadline: float) -> bool:
        """Write the object over its present version, unless that was done since a loop time; return whether it was.

        What another process still writes over an earlier version then has no effect, and the object is known as it is.
        """
        if not self._fence.is_after(since):
            self.refresh()
        return await self._fence.wait(since=since, deadline=deadline)

    def refresh(self) -> None:
        """Write the object soon, even without a new charge."""
        self._is_due = True
        self.wake()

    @property
    def in_flight(self) -> int:
        """The number of charges in the object."""
        return len(self._session.record.flights)

    @property
    def lag(self) -> int:
        """By how many resourceVersions the watched pods are behind those that the object was written with."""
        return max(0, self._session.record.folded - self._context.reached())

    @property
    def version(self) -> int:
        """The version of the last known object, 0 for none."""
        return self._session.version

    @property
    def is_idle(self) -> bool:
        """Whether no request is being decided or written."""
        return self._work is None or self._work.done()

    @property
    def is_outdated(self) -> bool:
        """Whether the object lists charges of pods that are confirmed or gone, or its status is outdated."""
        status = team_ledger.status_of(self._row(), in_flight=self.in_flight)
        return self._session.can_compact or self._status != status

    @property
    def is_current(self) -> bool:
        """Whether this replica's view of the pods is at least as new as the object."""
        return self._session.is_safe(self._context.reached()) and self._context.world.knows_all_namespaces

    @property
    def is_safe(self) -> bool:
        """Whether charges may be judged: that, and no other ledger has or takes any that would count here."""
        return self.is_current and self._context.homes.is_ready(self.team)

    async def drop_orphans(self, unseen_seconds: float) -> AsyncIterator[InFlightCharge]:
        """Read the pods charged so long ago and not seen since, nor queued; drop and yield charges of missing pods."""
        for flight in self._session.unseen():
            if self._ages.is_late(flight, unseen_seconds) and flight.pod.uid not in self._context.world.waiting:
                evidence = ENDED if flight.lingers else await self._client.pod_evidence(flight)
                self._session.note(flight.pod.uid, evidence)
                self.refresh()
                if evidence is ENDED and not flight.lingers:
                    yield flight

    async def remove(self) -> None:
        """Delete the object of a removed team, unless it was just written."""
        try:
            await self._client.delete(version=self._session.version)
        except ClusterError as error:
            self.problem = str(error)

    async def close(self) -> None:
        """Stop; waiting requests are answered by their deadlines."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    # -- batches

    def wake(self) -> None:
        """Write what is to be changed, if anything is."""
        if self.is_idle:
            self._work = self._loop.create_task(self._run(), name=f"ledger of {self.team}")

    async def _run(self) -> None:
        """Write batches until no request waits. A bug ends this, and is raised in every waiting request."""
        failures = 0
        try:
            while True:
                await self._pace.gather(lambda: sum(not each.is_over for each in self._waiting))
                self._drop_answered()
                if not (self._waiting or self._is_due or self._session.must_write):
                    return
                match await self._attempt():
                    case Result.WRITTEN:
                        failures = 0
                        self._max_charges = min(2 * self._max_charges, MAX_CHARGES)
                        await self._pace.yield_to_rival(2.0)
                    case Result.CONFLICT:
                        await self._pace.yield_to_rival(1.0)
                    case Result.UNKNOWN | Result.REFUSED | Result.TOO_LARGE:
                        failures += 1
                        await self._pace.back_off(failures)
        except Exception as bug:
            _log.exception("bug in the ledger of team %s", self.team)
            self._session.discard_draft(is_in_doubt=True)
            for request in self._waiting:
                if not request.is_over:
                    request.answer.set_exception(bug)
            self._waiting.clear()

    async def _attempt(self) -> Result:
        """Read the object if needed, wait for the view of the pods, decide, write, answer."""
        if self._session.is_stale and (read := await self._read()) is not Result.WRITTEN:
            return read
        is_safe = self.is_safe or (bool(self._waiting) and await self._await_view())
        self._follow_policy()
        if not is_safe:
            self._session.drop_drafts()
        admitted = self._decide() if is_safe else []
        if not (admitted or self._session.must_write or self._is_due):
            return Result.WRITTEN
        was_due, self._is_due = self._is_due, False  # a refresh requested during the write is due after it
        result = await self._write(len(admitted))
        for request in admitted:
            request.is_sent = result in (Result.WRITTEN, Result.UNKNOWN)
        if result is not Result.WRITTEN:
            self._is_due = self._is_due or was_due
            if result is Result.TOO_LARGE:
                self._split(admitted)
        else:
            for request in admitted:
                self._allow(request)
        return result

    def _split(self, admitted: list[LedgerRequest]) -> None:
        """Write half as many charges next time; a single charge that is too large is answered, and blocks no other."""
        self._max_charges = max(1, len(admitted) // 2)
        if len(admitted) == 1:
            self._answer(admitted[0], self._unavailable())

    def _drop_answered(self) -> None:
        """Forget the requests that were answered, and end the charges of those that were not allowed."""
        answered = [request for request in self._waiting if request.is_over]
        self._waiting = [request for request in self._waiting if not request.is_over]
        ended = {request.charged for request in answered if request.admitted is not None} - self._allowed
        ended.difference_update(request.charged for request in self._waiting)
        self._session.drop_drafts(ended)
        for request in answered:
            if request.is_sent and request.charged in ended and not request.asked.is_kept:
                self._session.withdraw(request.charged)
                if request.charged in self._ages:
                    self._context.recorder.withdrew()

    async def _await_view(self) -> bool:
        """Wait until the view of the pods is as new as the object, while any request waits; return whether it is."""
        if department_of(self.team) is None and self._context.homes.ledger_of(self.team) != self.team:
            for request in self._waiting:
                self._answer(request, ELSEWHERE)
        began = self._loop.time()
        while not self.is_safe and not all(each.is_over for each in self._waiting):
            for ledger in self._context.homes.prepare(self.team):
                if ledger != self.team:
                    self._context.wake(ledger)
            if self._session.has_amendments:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if (seconds := self._loop.time() - began) > _POLL_SECONDS / 2:
            self._context.recorder.waited(seconds)
        return self.is_safe

    def _decide(self) -> list[LedgerRequest]:
        """Decide each request that has no charge in the draft; return those whose charge the next write adds."""
        self.drop_released()
        drafts = self._session.drafts
        for request in self._waiting:
            if request.charged not in drafts and not request.is_over and len(drafts) < self._max_charges:
                self._draft(request, request.asked.judge())
        return [request for request in self._waiting if request.charged in drafts]

    def _draft(self, request: LedgerRequest, judged: LedgerDecision) -> None:
        """Answer a request that charges nothing, or nothing new; assume the charge of any other for the next write."""
        decision, flight, replaces = judged
        if flight is None:
            self._answer(request, decision)
        elif not self._context.homes.takes(self.team, flight.charge.team):
            self._answer(request, ELSEWHERE)
        elif self._client.is_half_full and self._session.is_mostly_of(flight.charge.team):
            self._answer(request, Retry(Reason(Code.LEDGER_FULL, _FULL, {"team": flight.charge.team})))
        else:
            self._follow_policy()
            request.admitted, request.charged = decision, flight.pod.uid
            self._session.charge(flight, replaces=replaces)
            if self._session.holds(flight):
                self._allow(request)

    def _follow_policy(self) -> None:
        """Drop what was drafted under an earlier policy."""
        if self._policy is not self._context.world.policy:
            self._session.drop_drafts()
            self._policy = self._context.world.policy

    def _allow(self, request: LedgerRequest) -> None:
        """Allow a request whose charge is in the object."""
        if request.admitted is not None and self._answer(request, request.admitted):
            self._allowed.add(request.charged)

    def _answer(self, request: LedgerRequest, decision: Decision) -> bool:
        """Answer a request; False if its caller no longer waits."""
        if request.is_over:
            return False
        is_waiting = self._loop.time() < request.asked.deadline and not request.asked.is_gone()
        request.answer.set_result(decision if is_waiting else _DISCONNECTED)
        return is_waiting

    def _give_up(self, request: LedgerRequest) -> None:
        """Answer a request at its deadline, if it still waits."""
        if not request.is_over:
            request.answer.set_result(self._unavailable())

    def _unavailable(self) -> Retry:
        if self.problem is not None:
            return Retry(Reason(Code.LEDGER_UNAVAILABLE, "{problem}: try again", {"problem": self.problem}))
        why = "other replicas kept writing" if self.is_safe else "this replica's view of the pods is behind"
        return Retry(Reason(Code.RACE_LOST, "the pod could not be charged in time, {why}: try again", {"why": why}))

    def _row(self) -> TeamRow | DepartmentRow:
        return ledger_row(self.team, self._context.world)

    # -- the object

    async def _write(self, charges: int) -> Result:
        session, began = self._session, self._loop.time()
        self._is_writing = True
        try:
            record, version = session.next_record(), session.version
            written = await self._client.write(record, self._row(), version=version, reader=self._reader)
            self.observe(written)
            result, self.problem = Result.WRITTEN, None
            self.wrote_at = self._loop.time()
            self._fence.note(began)
            self._pace.wrote(self.wrote_at - began, charges=charges)
        except (ClusterError, ValueError) as error:
            result = result_of(error, is_new=not session.version)
            session.discard_draft(is_in_doubt=result is Result.UNKNOWN)
            self.problem = None if result is Result.CONFLICT else str(error)
            if result is Result.CONFLICT:
                self._pace.saw_rival()
        finally:
            self._is_writing = False
        self._context.recorder.wrote(result.value, charges=charges, seconds=self._loop.time() - began)
        return result

    async def _read(self) -> Result:
        try:
            found = await self._client.read(known=self.version)
            if found is None:
                self._session.lose()
            else:
                self.observe(found)
        except (ClusterError, ValueError) as error:
            if isinstance(error, RestoredError):
                self._context.on_restored(error)
            self.problem = str(error)
            return Result.REFUSED
        return Result.WRITTEN
