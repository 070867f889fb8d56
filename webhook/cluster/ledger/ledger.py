"""The ledger on the API: one TeamLedger object per team, shared by all replicas."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, NoReturn

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.live_pod import fate_of
from webhook.cluster.ledger.ledger_context import Means, Recorder
from webhook.cluster.ledger.ledger_writer import Desk
from webhook.cluster.ledger.team_ledger_client import PATH
from webhook.cluster.watch.quotas import live_quotas
from webhook.cluster.watch.watched_kind import WatchedKind
from webhook.core.model.decision import Decision, Deny, NotApplicable
from webhook.core.model.names import UNASSIGNED, TeamName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.reason import Code, Reason
from webhook.core.quota.in_flight import InFlightCharge, LedgerDecision
from webhook.core.quota.resource_quotas import QuotaIndex, exceeded
from webhook.core.world.world import World
from webhook.kube.admission.review import Review
from webhook.kube.ledger.team_ledger import TeamLedger, object_name
from webhook.kube.objects.keys import TEAM_LEDGERS

UNSEEN_SECONDS: Final = 40.0
"""When to look for a pod that nobody saw: kube-apiserver gives a request up after 34 s, so it cannot come any more."""

_REAP_SECONDS: Final = 5.0
"""Between two looks for such pods. With the above, an orphan is gone in well under 90 s."""

_RECONCILE_SECONDS: Final = 1.0
"""Between two looks for objects that are out of date …"""

_REST_SECONDS: Final = 2.0
"""… and the least time between two writes that nobody asked for."""


class TeamState(NamedTuple):
    """What a team's desk has on its page, and how far behind it this replica's view of the pods is."""

    team: TeamName
    in_flight: int
    lag: int


class ApiLedger:
    """Charges pods on TeamLedger objects; implements webhook.server.review.ledger_protocol.Ledger.

    `reached` is the resourceVersion that the view of the pods has come to; `known` tells whose a pod's name is in it,
    by `NAMESPACE/NAME`: a UID, "" where that is not known, None for nobody's. `quotas` are those that it shows.
    """

    is_watched: Final = True

    def __init__(
        self,
        connection: ApiConnection,
        world: World,
        *,
        reached: Callable[[], int],
        recorder: Recorder,
        known: Callable[[str], str | None],
        quotas: QuotaIndex | None = None,
    ) -> None:
        self._world = world
        self._quotas = quotas or QuotaIndex()
        self._known = known
        self._means = Means(connection, world, reached, recorder)
        self._desks: dict[TeamName, Desk] = {}

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Refuse from memory what has no chance; everything else is judged and written with its team's next batch.

        Pods of exempt namespaces are never refused, so they do not wait for a write either: the watch will charge them.
        """
        decision, flight = judge()
        if flight is None or (isinstance(decision, NotApplicable) and decision.reason.code is Code.EXEMPT):
            return decision
        if await self._is_taken(flight.pod):
            return Deny((Reason(Code.ALREADY_EXISTS, f'pods "{flight.pod.name}" already exists'),))
        if (reason := await self._over_quota(flight.pod)) is not None:
            return Deny((reason,))
        return await self._desk(flight.charge.team).charge(judge, deadline=deadline, is_gone=is_gone)

    async def _is_taken(self, pod: Resident) -> bool:
        """Tell whether another pod has the name, so that this one cannot come and must not be charged.

        The view may show a pod that is gone by now: the API server is asked, and believed.
        """
        if self._known(f"{pod.namespace}/{pod.name}") in (None, pod.uid):
            return False
        try:
            found = await fate_of(self._means.connection, pod)
        except ClusterError:
            return False
        return found is not None and found.uid != pod.uid

    async def _over_quota(self, pod: Resident) -> Reason | None:
        """Tell which ResourceQuota the API server will refuse this pod for, so that it must not be charged.

        The view may be behind a quota that has room by now: the API server is asked, and believed.
        """
        if exceeded(pod.demand, self._quotas.of(pod.namespace)) is None:
            return None
        try:
            return exceeded(pod.demand, await live_quotas(self._means.connection, pod.namespace))
        except ClusterError:
            return None

    def release(self, review: Review) -> None:
        """Leave it to the watch: a DELETE that is reviewed may yet fail."""

    def withdraw(self, team: TeamName, uid: Uid) -> None:
        """Take a charge or a promotion back, of which it is known that nothing will come."""
        self._desk(team).withdraw(uid)

    def linger(self, flight: InFlightCharge) -> None:
        """Keep a charge that is assumed for a pod which its node may still run, for as long as that may be."""
        self._desk(flight.charge.team).linger(flight)

    def promotions(self) -> Iterable[InFlightCharge]:
        """List the promotions that are charged and still to be carried out, whoever charged them."""
        return [flight for desk in self._desks.values() for flight in desk.promotions()]

    # -- what the watch brings

    def kind(self) -> WatchedKind[TeamLedger]:
        """Describe the objects to the watch."""
        return WatchedKind(
            name=TEAM_LEDGERS,
            path=PATH,
            item=TeamLedger,
            key=lambda found: found.metadata.name,
            handle=lambda found: found.metadata.uid,
            apply=self._see,
            remove=self._lose,
        )

    def _see(self, found: TeamLedger) -> bool:
        """Take over a team's object; one that somebody made under another name is not it."""
        is_ours = found.metadata.name == object_name(found.team)
        if is_ours:
            self._desk(found.team).see(found)
        return is_ours

    def _lose(self, identity: str) -> None:
        for desk in self._desks.values():
            desk.lose(identity)

    # -- duties of one replica; harmless in several, since each write is a compare-and-swap made on evidence

    async def drop_orphans(
        self,
        *,
        is_leader: Callable[[], bool],
        report: Callable[[InFlightCharge], None],
        unseen_seconds: float = UNSEEN_SECONDS,
    ) -> NoReturn:
        """Drop charges whose pods never came, on the evidence of a live read, and report each."""
        while True:
            await asyncio.sleep(min(_REAP_SECONDS, unseen_seconds))
            for desk in [*self._desks.values()] if is_leader() else []:
                try:
                    async for flight in desk.look_after(unseen_seconds):
                        report(flight)
                except ClusterError as error:
                    desk.problem = str(error)

    async def reconcile(self, *, is_leader: Callable[[], bool]) -> NoReturn:
        """Keep every object true while nobody asks for a charge: settled charges leave, people's numbers follow."""
        while True:
            await asyncio.sleep(random.uniform(1, 2) * _RECONCILE_SECONDS)  # noqa: S311 - jitter
            for desk in self._desks.values():
                desk.settle()
                if is_leader():
                    desk.write_lingering()
            if is_leader():
                for team in self._world.policy.teams:
                    self._desk(team.name)
                for desk in [*self._desks.values()]:
                    await self._look_at(desk)

    async def _look_at(self, desk: Desk) -> None:
        rested = asyncio.get_running_loop().time() - desk.wrote_at >= _REST_SECONDS
        if not (desk.is_idle and desk.is_safe and rested):
            return
        is_named = desk.team == UNASSIGNED or any(team.name == desk.team for team in self._world.policy.teams)
        if not is_named and not desk.in_flight and not desk.lingering:
            if desk.version:
                await desk.remove()
            else:
                del self._desks[desk.team]
        elif desk.is_outdated and (is_named or desk.version):
            desk.refresh()

    # -- for metrics and the end

    def states(self) -> Iterable[TeamState]:
        """Tell how each team's page stands."""
        return [TeamState(desk.team, desk.in_flight, desk.lag) for desk in self._desks.values()]

    async def close(self) -> None:
        """Stop every desk."""
        await asyncio.gather(*(desk.close() for desk in self._desks.values()))

    def _desk(self, team: TeamName) -> Desk:
        desk = self._desks.get(team)
        if desk is None:
            desk = self._desks[team] = Desk(team, self._means)
        return desk
