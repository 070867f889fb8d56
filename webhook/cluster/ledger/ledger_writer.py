"""One team's desk: takes what waits, judges it in one go, and makes it durable with one write.

The stretch from judging to taking every admitted pod into the world awaits nothing: on one event loop that is the
lock. The write that follows is a compare-and-swap on the object's version, so whatever another replica did in between
sends this batch back to be judged anew.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.cluster.api.errors import ClusterError
from webhook.cluster.ledger.ledger_context import Means
from webhook.cluster.ledger.team_ledger_client import WRITE_SECONDS, Result, TeamObject, result_of
from webhook.core.explain.team_summary import Summary, summary_of
from webhook.core.model.decision import Decision, Retry
from webhook.core.model.names import TeamName, Uid
from webhook.core.model.reason import Code, Reason
from webhook.core.quota.in_flight import ENDED, InFlightCharge, LedgerDecision
from webhook.core.world.ledger_session import LedgerSession
from webhook.kube.ledger import team_ledger
from webhook.kube.ledger.team_ledger import TeamLedger

_POLL_SECONDS: Final = 0.002
"""How often a view that is behind is looked at again: the event it lacks is on its way."""

_RIVAL_SECONDS: Final = 1.0
"""For how long to make room for another replica that wrote: two that write without pause keep a third out for seconds
(three writers at 200 requests/s: p99 5 s before, well under a second with it)."""

_FAILURE_SECONDS: Final = 0.05
"""First rest after a failure; doubled for each further one …"""

_LONGEST_SECONDS: Final = 1.0
"""… up to this: whoever waits has some four seconds."""

MOST_CHARGES: Final = 500
"""Charges in one write, so that it stays small and quick; halved while the API server finds it too large."""

_log: Final = logging.getLogger("webhook.cluster.ledger.ledger")
_MOVED: Final = Retry(Reason(Code.RACE_LOST, "the pod's team changed while it waited: try again"))
_LEFT: Final = Retry(Reason(Code.RACE_LOST, "the caller left before the charge was made: try again"))


@dataclass(slots=True, eq=False)
class _Ticket:
    """A request that waits for its decision. `charged` is what may be on the page for it before it heard a yes."""

    judge: Callable[[], LedgerDecision]
    deadline: float
    is_gone: Callable[[], bool]
    answer: "asyncio.Future[Decision]"
    charged: Uid | None = None


class _Admitted(NamedTuple):
    ticket: _Ticket
    decision: Decision
    uid: Uid


class Desk:
    """Serves one team; desks know nothing of each other, so no team ever waits for another."""

    def __init__(self, team: TeamName, means: Means) -> None:
        self.team = team
        self.problem: str | None = None
        self.wrote_at = 0.0
        self._write_seconds = 0.005  # of the last write
        self._rival_at = float("-inf")  # when another replica was last seen writing
        self._means = means
        self._ledger_session = LedgerSession(means.world)
        self._object = TeamObject(means.connection, team)
        self._told: team_ledger.Status | None = None
        self._first_seen: dict[Uid, float] = {}
        self.lingering: dict[Uid, InFlightCharge] = {}  # seen by this replica, and not on the page yet
        self._most = MOST_CHARGES
        self._allowed: set[Uid] = set()  # those on the page for which somebody heard a yes
        self._queue: list[_Ticket] = []
        self._is_due = False
        self._is_writing = False
        self._work: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    # -- what others tell and ask

    async def charge(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Have a pod judged with the next batch; answers by the deadline in any case."""
        ticket = _Ticket(judge, deadline, is_gone, self._loop.create_future())
        self._queue.append(ticket)
        self._start()
        try:
            async with asyncio.timeout_at(deadline):
                return await ticket.answer
        except TimeoutError:
            if ticket.answer.done() and not ticket.answer.cancelled():
                return ticket.answer.result()  # both came in the same turn of the loop: the charge stands
            return self._unavailable()

    def see(self, found: TeamLedger, *, is_live: bool = False) -> None:
        """Take over the team's object as the watch, a write of our own or a live read brought it."""
        if found.version > self._ledger_session.version:
            self._told = found.status
            if not self._is_writing:
                self._rival_at = self._loop.time()
        self._ledger_session.see(found.page, version=found.version, identity=found.metadata.uid, is_live=is_live)
        now = self._loop.time()
        for uid in self._ledger_session.page.flights:
            self.lingering.pop(uid, None)
        listed = (*self._ledger_session.page.flights, *self.lingering)
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in listed}
        self._allowed.intersection_update(self._first_seen)
        self.settle()

    def lose(self, identity: str) -> None:
        """Take in that an object was deleted."""
        if self._ledger_session.identity == identity:
            self._ledger_session.lose()
            self._told = None

    def settle(self) -> None:
        """Let go of charges that left the page, as far as the view of the pods has come, and of what lingered."""
        self._ledger_session.settle(self._means.reached())
        for uid in [uid for uid, flight in self.lingering.items() if self._is_late(flight)]:
            del self.lingering[uid]
            self._means.world.settle(uid)

    def linger(self, flight: InFlightCharge) -> None:
        """Keep a charge that is assumed for as long as its pod may linger."""
        if flight.pod.uid not in self._ledger_session.page.flights:
            self.lingering[flight.pod.uid] = flight
            self._first_seen[flight.pod.uid] = self._loop.time()

    def write_lingering(self) -> None:
        """Have what lingers on the page soon, where every replica finds it, also one that starts later."""
        for flight in self.lingering.values():
            self._ledger_session.carry(flight)
        if self.lingering:
            self._start()

    def withdraw(self, uid: Uid) -> None:
        """Take a charge off the page soon, unless its pod is there and proves it."""
        self._ledger_session.withdraw(uid)
        self._start()

    def promotions(self) -> Iterable[InFlightCharge]:
        """List the promotions on the page that are still to be carried out."""
        return self._ledger_session.promotions()

    def refresh(self) -> None:
        """Write the page soon, whether or not anybody asks for a charge."""
        self._is_due = True
        self._start()

    @property
    def in_flight(self) -> int:
        """Count the charges that the page lists."""
        return len(self._ledger_session.page.flights)

    @property
    def lag(self) -> int:
        """Tell by how many resourceVersions the view of the pods is behind what the page was folded to."""
        return max(0, self._ledger_session.page.folded - self._means.reached())

    @property
    def version(self) -> int:
        """Tell the version of the object that was read last, 0 for none."""
        return self._ledger_session.version

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is being judged or written."""
        return self._work is None or self._work.done()

    @property
    def is_outdated(self) -> bool:
        """Tell whether the object lists charges that are settled, or tells people what is no longer so."""
        return self._ledger_session.can_compact or self._told != team_ledger.status_of(
            self._summary(), in_flight=self.in_flight
        )

    @property
    def is_safe(self) -> bool:
        """Tell whether what this replica sees is at least as new as what the page was folded to."""
        return self._ledger_session.is_safe(self._means.reached()) and self._means.world.knows_all_namespaces

    async def look_after(self, unseen_seconds: float) -> AsyncIterator[InFlightCharge]:
        """Look live for the pods of charges that nobody has seen for so long; drop and give those that never came."""
        for flight in self._ledger_session.unseen():
            if self._is_late(flight, unseen_seconds):
                evidence = ENDED if flight.lingers else await self._object.fate(flight)
                self._ledger_session.note(flight.pod.uid, evidence)
                self.refresh()
                if evidence is ENDED and not flight.lingers:
                    yield flight

    def _is_late(self, flight: InFlightCharge, unseen_seconds: float = 0.0) -> bool:
        """Tell whether a charge is older, by this process's clock, than its pod can still come, or linger."""
        now = self._loop.time()
        return now - self._first_seen.get(flight.pod.uid, now) > (flight.lingers or unseen_seconds)

    async def remove(self) -> None:
        """Delete the object, of a team that is no more, unless somebody just wrote it."""
        try:
            await self._object.delete(version=self._ledger_session.version)
        except ClusterError as error:
            self.problem = str(error)

    async def close(self) -> None:
        """Stop working; what waits is answered by its deadline."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    # -- the work

    def _start(self) -> None:
        if self.is_idle:
            self._work = self._loop.create_task(self._serve(), name=f"ledger of {self.team}")

    async def _serve(self) -> None:
        """Serve until nothing waits. A bug ends the work, and is everybody's answer who waited for it."""
        waiting: list[_Ticket] = []
        failures = 0
        try:
            while True:
                waiting = self._still_waiting([*waiting, *self._queue])
                self._queue.clear()
                if not (waiting or self._is_due or self._ledger_session.must_write):
                    return
                match await self._attempt(waiting):
                    case Result.WRITTEN:
                        failures = 0
                        self._most = min(2 * self._most, MOST_CHARGES)
                        await self._make_room(2.0)
                    case Result.CONFLICT:
                        await self._make_room(1.0)
                    case Result.UNKNOWN | Result.REFUSED | Result.TOO_LARGE:
                        failures += 1
                        await asyncio.sleep(_rest(_FAILURE_SECONDS, failures))
        except Exception as bug:
            _log.exception("bug in the ledger of team %s", self.team)
            self._ledger_session.discard_draft(is_in_doubt=True)
            for ticket in (*waiting, *self._queue):
                if not ticket.answer.done():
                    ticket.answer.set_exception(bug)
            self._queue.clear()

    async def _make_room(self, writes: float) -> None:
        """Rest for up to so many writes while another replica writes, too: who won waits longer than who lost."""
        if self._loop.time() - self._rival_at < _RIVAL_SECONDS:
            await asyncio.sleep(random.uniform(0.0, writes) * self._write_seconds)  # noqa: S311 - jitter

    async def _attempt(self, waiting: list[_Ticket]) -> Result:
        """Read what is not known, wait for the view to come along, judge, write, answer."""
        if self._ledger_session.is_stale and (read := await self._read()) is not Result.WRITTEN:
            return read
        if waiting:
            await self._await_view(waiting)
        admitted = self._judge(waiting) if self.is_safe else []
        if not (admitted or self._ledger_session.must_write or self._is_due):
            return Result.WRITTEN
        was_due, self._is_due = self._is_due, False  # what is asked for during the write is due after it
        result = await self._write(len(admitted))
        if result is not Result.WRITTEN:
            self._is_due = self._is_due or was_due
            if result is Result.TOO_LARGE:
                self._split(admitted)
        else:
            for ticket, decision, uid in admitted:
                self._allow(ticket, decision, uid)
        return result

    def _split(self, admitted: list[_Admitted]) -> None:
        """Write half as many charges the next time; one that does not fit by itself holds up no other."""
        self._most = max(1, len(admitted) // 2)
        if len(admitted) == 1:
            self._answer(admitted[0].ticket, self._unavailable())

    def _still_waiting(self, tickets: list[_Ticket]) -> list[_Ticket]:
        """Leave out those that were answered; what may be charged for one that never heard a yes is taken back."""
        for ticket in tickets:
            if self._is_over(ticket) and ticket.charged is not None and ticket.charged not in self._allowed:
                self._ledger_session.withdraw(ticket.charged)
                if ticket.charged in self._first_seen:
                    self._means.recorder.withdrew()
        return [ticket for ticket in tickets if not self._is_over(ticket)]

    async def _await_view(self, waiting: list[_Ticket]) -> None:
        """Wait until the view is as new as the page, as long as anybody waits with us."""
        began = self._loop.time()
        while not self.is_safe and not all(map(self._is_over, waiting)):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(_POLL_SECONDS)
        if (seconds := self._loop.time() - began) > _POLL_SECONDS / 2:
            self._means.recorder.waited(seconds)

    def _judge(self, waiting: list[_Ticket]) -> list[_Admitted]:
        """Judge all that wait on one state of the world; what is admitted is in it before the next is judged."""
        self.settle()
        admitted: list[_Admitted] = []
        for ticket in waiting:
            if len(admitted) >= self._most:
                break
            if self._is_over(ticket):
                continue
            decision, flight = ticket.judge()
            if flight is None:
                self._answer(ticket, decision)
            elif flight.charge.team != self.team:
                self._answer(ticket, _MOVED)
            else:
                self._ledger_session.charge(flight)
                if self._ledger_session.holds(flight):
                    self._allow(ticket, decision, flight.pod.uid)
                else:
                    ticket.charged = flight.pod.uid
                    admitted.append(_Admitted(ticket, decision, flight.pod.uid))
        return admitted

    def _allow(self, ticket: _Ticket, decision: Decision, uid: Uid) -> None:
        """Say yes to a request whose charge is on the page."""
        if self._answer(ticket, decision):
            self._allowed.add(uid)

    def _answer(self, ticket: _Ticket, decision: Decision) -> bool:
        """Answer a request; False where nobody is there any more to hear it."""
        if self._is_over(ticket):
            return False
        is_heard = self._loop.time() < ticket.deadline and not ticket.is_gone()
        ticket.answer.set_result(decision if is_heard else _LEFT)
        return is_heard

    @staticmethod
    def _is_over(ticket: _Ticket) -> bool:
        return ticket.answer.done()

    def _unavailable(self) -> Retry:
        if self.problem is not None:
            return Retry(Reason(Code.LEDGER_UNAVAILABLE, f"{self.problem}: try again"))
        why = "others were faster" if self.is_safe else "this replica's view of the pods is behind"
        return Retry(Reason(Code.RACE_LOST, f"the charge could not be made in time, {why}: try again"))

    def _summary(self) -> Summary:
        return summary_of(self.team, self._means.world)

    # -- the object

    async def _write(self, charges: int) -> Result:
        ledger_session, began = self._ledger_session, self._loop.time()
        self._is_writing = True
        try:
            self.see(
                await self._object.write(ledger_session.next_record(), self._summary(), version=ledger_session.version)
            )
            result, self.problem = Result.WRITTEN, None
            self.wrote_at = self._loop.time()
            self._write_seconds = min(self.wrote_at - began, WRITE_SECONDS / 30)
        except (ClusterError, ValueError) as error:
            result = result_of(error, is_new=not ledger_session.version)
            ledger_session.discard_draft(is_in_doubt=result is Result.UNKNOWN)
            self.problem = None if result is Result.CONFLICT else str(error)
            if result is Result.CONFLICT:
                self._rival_at = self._loop.time()
        finally:
            self._is_writing = False
        self._means.recorder.wrote(result.value, charges=charges, seconds=self._loop.time() - began)
        return result

    async def _read(self) -> Result:
        try:
            found = await self._object.read()
            if found is None:
                self._ledger_session.lose()
            else:
                self.see(found, is_live=True)
        except (ClusterError, ValueError) as error:
            self.problem = str(error)
            return Result.REFUSED
        return Result.WRITTEN


def _rest(first: float, times: int) -> float:
    """Draw a rest: replicas that failed together must not come back together."""
    return random.uniform(0.5, 1.0) * min(_LONGEST_SECONDS, first * 2.0 ** min(times - 1, 16))  # noqa: S311 - jitter
