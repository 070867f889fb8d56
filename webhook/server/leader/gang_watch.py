"""What the leader does about gangs besides releasing them: reads sizes, ends kept room, says what was assumed."""

from collections.abc import MutableMapping

from webhook.core.gangs.gang_line import GangLine
from webhook.core.gangs.late_members import EndedReservations, ended_reservations
from webhook.core.model.names import GangId, TeamName, Uid
from webhook.core.model.pod import Resident
from webhook.core.model.text import duration, plural
from webhook.core.starting.assumed_starts import AssumedStarts
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.objects.events import EventReason
from webhook.server.leader.gang_sizes import GangSizes
from webhook.server.leader.leader_context import LeaderContext


class GangWatch:
    """Keeps gangs from holding what they do not come for. `timed_out` counts those that did not come in time, by team.

    Call `begin` when leading begins, `read` before each look at the queue, and `update` after it.
    """

    def __init__(self, context: LeaderContext, *, timed_out: MutableMapping[TeamName, int]) -> None:
        self._context = context
        self._world = context.world
        self._ledger = context.ledger
        self._timed_out = timed_out
        self._sizes = GangSizes(context.connection, context.world, on_problem=self._report_unknown)
        self._ended: set[Uid] = set()

    def begin(self) -> None:
        """Forget what an earlier term ended."""
        self._ended.clear()

    async def read(self, gangs: GangLine, *, now: int) -> None:
        """Read the sizes of gangs that wait for members."""
        await self._sizes.read(gangs, now=now)

    def update(self, starts: AssumedStarts) -> None:
        """End the room that is not to be kept on, and report the gangs that did not come in time."""
        timeouts = starts.entries.gangs.timeouts
        for timeout in timeouts:
            waiting = timeout.waiting
            self._count(waiting.team)
            self._context.report(waiting.pod, EventReason.GANG_TIMED_OUT, timeout.cause.text)
        timeouts.clear()
        is_needed, is_in_view = starts.is_room_needed, self._ledger.shows_gang_of
        for lost in ended_reservations(self._world, is_needed=is_needed, is_in_view=is_in_view):
            self._end(lost)
        self._ended = {uid for uid in self._ended if self._world.is_assumed(uid)}

    def _end(self, lost: EndedReservations) -> None:
        new = [reservation for reservation in lost.reservations if reservation.pod.uid not in self._ended]
        for reservation in lost.reservations:
            self._ledger.withdraw(reservation.charge.team, reservation.pod.uid)
        self._ended.update(reservation.pod.uid for reservation in new)
        if not (new and lost.is_late):
            return
        self._count(new[0].charge.team)
        started = self._member(lost.gang)
        if started is not None:
            seconds = self._world.policy.queue.gang_timeout_seconds
            pods, whose = plural(len(new), "pod"), "its" if len(new) == 1 else "their"
            text = f"{pods} of its gang did not come within {duration(seconds)}: {whose} room is kept no longer"
            self._context.report(started, EventReason.GANG_TIMED_OUT, text)

    def _member(self, gang: GangId) -> Resident | None:
        uid = self._world.gangs.first(gang)
        return None if uid is None else self._world.pod(uid)

    def _count(self, team: TeamName) -> None:
        self._timed_out[team] = self._timed_out.get(team, 0) + 1

    def _report_unknown(self, waiting: WaitingPod, problem: str) -> None:
        text = f"{problem}: the pods that come without a pause are taken for the whole gang"
        self._context.report(waiting.pod, EventReason.GANG_SIZE_UNKNOWN, text)
