"""Keeps the holdings of all nodes: takes plans in, drops what is over, and says what is to be done about a node.

It holds what is true for this leader; a new one takes over what the nodes themselves say.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from webhook.cluster.writes.evictions import Evicted, Later, Outcome, Refused
from webhook.core.model.names import NodeName, TeamName, Uid
from webhook.core.model.selector import HELD
from webhook.core.reclaim.reclaim_plan import Hold, Leaving, Move
from webhook.core.reclaim.reservation import Claim, Holding, Target, holds, inherited, is_short
from webhook.evictor.backoff import PodBackoff, TeamBackoff
from webhook.evictor.cluster_view import ClusterView
from webhook.evictor.executor import NodeActions
from webhook.evictor.reporter import Account

HOLD_SECONDS: Final = 60
"""How long a node keeps room after the last step forward, such as a victim that is gone: time to be scheduled, many
times over. In a crowd pods wait for their turn, and room that is given up is made in vain."""

LONGEST_SECONDS: Final = 300
"""How long a node keeps room at most beyond the notice and the longest grace period, whatever happens on it: steps
forward on one of its pods must not keep it for another that never starts."""

SHORT_SECONDS: Final = 30.0
"""A pod that ends so soon after others went for it used nothing of their room."""

UNSEEN_SECONDS: Final = 30.0
"""How long an eviction that was accepted may stay unseen by the watch before it counts as not done."""

REFUSED_SECONDS: Final = 60.0
"""How long a victim is left alone that the API server would not let go: budgets change slowly."""


class Keeper:
    """The holdings and all that is under way. Implements webhook.evictor.executor.Log."""

    def __init__(
        self, cluster_view: ClusterView, account: Account, *, clock: Callable[[], float], new_id: Callable[[], str]
    ) -> None:
        self.holdings: dict[NodeName, Holding] = {}
        self.victims: PodBackoff[Uid] = PodBackoff(clock)  # that the API server will not evict
        self.immovable: PodBackoff[Uid] = PodBackoff(clock)  # nor delete
        self.waiting: PodBackoff[Uid] = PodBackoff(clock)
        self.teams: TeamBackoff[TeamName] = TeamBackoff(clock)
        self._lookout = cluster_view
        self._roll = cluster_view.reclaim_index
        self._account = account
        self._clock = clock
        self._new_id = new_id
        self._written: dict[NodeName, Holding | None] = {}
        self._let_in: set[tuple[Uid, str]] = set()
        self._noticed: dict[Uid, Target] = {}
        self._later: dict[Uid, float] = {}
        self._sent: dict[Uid, float] = {}
        self._waiting_since: dict[Uid, float] = {}
        self._lost: deque[tuple[float, TeamName]] = deque()
        self._nominated: dict[Uid, tuple[Claim, NodeName]] = {}
        self._paid: dict[Uid, TeamName] = {}  # the waiting pods for which others went, and whose they are
        self._seated: dict[Uid, tuple[float, TeamName]] = {}  # those of them that got their room lately

    # -- what plans read

    def resting(self) -> set[Uid]:
        """List the waiting pods that are left alone now."""
        teams = self.teams.resting()
        found = {tenant.pod.uid for tenant in self._roll.waiting() if tenant.team in teams} if teams else set()
        return found | self.waiting.resting()

    def holds(self) -> list[Hold]:
        """List all room that is kept."""
        return holds(self.holdings.values(), self._roll)

    def under_way(self) -> set[Uid]:
        """List the victims that are chosen already."""
        return {target.uid for holding in self.holdings.values() for target in holding.targets}

    def evicted(self) -> dict[TeamName, int]:
        """Tell how many pods each team lost within the last minute, or is about to."""
        while self._lost and self._lost[0][0] <= self._clock() - 60:
            self._lost.popleft()
        found: dict[TeamName, int] = {}
        due = [tenant.team for uid in self.under_way() if (tenant := self._roll.get(uid)) is not None]
        for team in (*due, *(team for _, team in self._lost)):
            found[team] = found.get(team, 0) + 1
        return found

    def next_due(self) -> float | None:
        """Tell when something is due by itself; None where nothing is."""
        times = [
            *(self._end_of(holding) for holding in self.holdings.values()),
            *(max(t.at, self._later.get(t.uid, 0)) for h in self.holdings.values() for t in h.targets),
            *(at + UNSEEN_SECONDS for at in self._sent.values()),
        ]
        ends = [rests.next_end() for rests in (self.victims, self.immovable, self.waiting, self.teams)]
        return min([*times, *(end for end in ends if end is not None)], default=None)

    # -- what changes

    def adopt(self) -> None:
        """Take over what the nodes say of an earlier leader's work; its deadlines begin anew, since clocks differ."""
        now = self._clock()
        until = int(now) + HOLD_SECONDS
        self._sent = dict.fromkeys(self._roll.going(), now)
        for node, found in self._lookout.marked.items():
            if found is not None:
                self._written[node] = found
                kept_until = max(until, *(t.at + HOLD_SECONDS for t in found.targets), 0)
                since = min(found.since, int(now)) or int(now)
                self.holdings[node] = replace(found, until=kept_until, since=since)
                self._nominated |= {claim.uid: (claim, node) for claim in found.claims}
                self._noticed |= {t.uid: t for t in found.targets if (p := self._roll.get(t.uid)) and p.notice_at}

    def heed(self, waiting: Iterable[Uid]) -> None:
        """Take in who waits, to tell later for how long; those who neither wait nor have room kept are forgotten."""
        now = self._clock()
        claiming = [claim.uid for holding in self.holdings.values() for claim in holding.claims]
        self._waiting_since = {uid: self._waiting_since.get(uid, now) for uid in (*waiting, *claiming)}

    def accept(self, moves: Iterable[Move], *, notice_seconds: int) -> None:
        """Take plans in; nothing is done yet."""
        now = self._clock()
        at = int(now) + notice_seconds
        emptied = self._roll.empty_at(now=now)
        for move in moves:
            before = self.holdings.get(move.node) or Holding(self._new_id(), move.node, 0, (), since=int(now))
            empty_at = max(at + self._longest_grace(v.uid for v in move.victims), emptied.get(move.node, 0))
            until = empty_at + HOLD_SECONDS
            self.holdings[move.node] = before.joined(move, at=at, until=until)

    def abandon(self) -> None:
        """Give all room back and let everybody stay: nothing is enforced any more."""
        self.holdings.clear()

    def tidy(self) -> list[Target]:
        """Drop what is over, and give up what will not be; gives the targets that may stay after all."""
        now = self._clock()
        self._note_short_lives()
        for uid in [uid for uid, at in self._sent.items() if at + UNSEEN_SECONDS <= now or self._roll.get(uid) is None]:
            del self._sent[uid]
            self._roll.take_back(uid)
        leaving = self._roll.leaving(now=now)
        for node, holding in list(self.holdings.items()):
            kept, has_room = self._trimmed(holding, leaving.get(node, ()))
            kept = self._prolonged(holding, kept)
            self._tell_who_is_seated(holding, kept)
            if kept is not None and kept.claims and (self._end_of(kept) < now or not has_room):
                self._give_up(kept, has_room=has_room)
                kept = kept.given_up()
            if kept is None:
                del self.holdings[node]
            else:
                self.holdings[node] = kept
        return self._calmed()

    def node_actions(self, node: NodeName) -> NodeActions:
        """Say what is to be done about a node now."""
        holding, now = self.holdings.get(node), self._clock()
        if holding is None:
            written, marked = self._written, self._lookout.marked
            is_marked = written[node] is not None if node in written else node in marked
            return NodeActions(node, None, is_news=is_marked)
        tenants = {claim.uid: self._roll.get(claim.uid) for claim in holding.claims}
        teams = {uid: tenant.team for uid, tenant in tenants.items() if tenant is not None}
        return NodeActions(
            node,
            holding,
            is_news=not _says(self._written.get(node), holding),
            let_in=tuple([claim for claim in holding.claims if not self._is_in(claim, holding)]),
            first=frozenset(
                uid for uid, tenant in tenants.items() if tenant is not None and not tenant.constraints.tolerations
            ),
            notices=tuple(
                [
                    (target, teams[target.claim])
                    for target in holding.targets
                    if target.at > now and target.uid not in self._noticed and target.claim in teams
                ]
            ),
            evictions=tuple([t for t in holding.targets if t.at <= now and self._later.get(t.uid, 0) <= now]),
        )

    def wants(self, target: Target, node: NodeName) -> bool:
        """Tell whether a victim is still to go for the room of a node; not one whose eviction was accepted already."""
        if target.uid in self._sent or self._roll.is_going(target.uid):
            return False
        holding = self.holdings.get(node)
        return holding is not None and any(each.uid == target.uid for each in holding.targets)

    # -- what was done

    def wrote(self, node: NodeName, holding: Holding | None) -> None:
        """A node says what it keeps."""
        self._written[node] = holding
        if holding is None:
            self._let_in = {pair for pair in self._let_in if pair[1] in {h.id for h in self.holdings.values()}}

    def admitted(self, claim: Claim, holding: Holding) -> None:
        """A waiting pod was let in."""
        self._let_in.add((claim.uid, holding.id))
        self._nominated[claim.uid] = claim, holding.node

    def released(self) -> list[Claim]:
        """List the pods that wait on, and for which kube-scheduler is to keep no room any more."""
        found = []
        for uid, (claim, node) in list(self._nominated.items()):
            holding, tenant = self.holdings.get(node), self._roll.get(uid)
            if tenant is None or not tenant.is_waiting:
                del self._nominated[uid]
            elif holding is None or claim not in holding.claims:
                found.append(claim)
        return found

    def forget_nomination(self, claim: Claim) -> None:
        """Kube-scheduler keeps no room for a pod any more."""
        self._nominated.pop(claim.uid, None)

    def noticed(self, target: Target) -> None:
        """A victim was told."""
        self._noticed[target.uid] = target

    def sent_away(self, target: Target, outcome: Outcome) -> None:
        """A victim was sent away, or not."""
        now = self._clock()
        self._account.evicted(target, outcome, now=int(now))
        self._later.pop(target.uid, None)
        match outcome:
            case Evicted():
                tenant, waiting = self._roll.get(target.uid), self._roll.get(target.claim)
                if outcome is not Evicted.GONE and tenant is not None:
                    self._lost.append((now, tenant.team))
                    if waiting is not None:
                        self._paid[target.claim] = waiting.team
                self._roll.send_away(target.uid)
                self._sent[target.uid] = now
            case Refused():
                self.leave_alone(target, REFUSED_SECONDS)
                self.holdings = {node: holding.without(target.uid) for node, holding in self.holdings.items()}
            case Later(seconds=seconds):
                self._later[target.uid] = now + seconds

    def leave_alone(self, target: Target, seconds: float) -> None:
        """Choose a victim no more for a while: the API server will not let it go."""
        rests = self.immovable if target.is_past_budgets else self.victims
        rests.rest(target.uid, seconds)

    def _is_in(self, claim: Claim, holding: Holding) -> bool:
        """Tell whether a waiting pod may use the room, by our own doing or by an earlier leader's."""
        tenant = self._roll.get(claim.uid)
        held = () if tenant is None else tenant.constraints.tolerations
        return (claim.uid, holding.id) in self._let_in or any(
            toleration.key == HELD and toleration.value == holding.id for toleration in held
        )

    def _tell_who_is_seated(self, before: Holding, after: Holding | None) -> None:
        for claim in before.claims:
            if after is None or claim not in after.claims:
                self.waiting.forget(claim.uid)
                since = self._waiting_since.pop(claim.uid, None)
                tenant, team = self._roll.get(claim.uid), self._paid.pop(claim.uid, None)
                is_seated = tenant is not None and tenant.pod.node is not None
                if team is not None and is_seated:
                    self._seated[claim.uid] = self._clock(), team
                elif team is not None:
                    self._waste(team)
                if since is not None and tenant is not None and tenant.pod.node is not None:
                    self._account.seated(claim, node=tenant.pod.node, seconds=self._clock() - since)

    def _note_short_lives(self) -> None:
        """Take in who ended just after others went for it: to delete and create again must not be free."""
        now = self._clock()
        for uid, (at, team) in list(self._seated.items()):
            if self._roll.is_going(uid):
                self._waste(team)
            if self._roll.is_going(uid) or at + SHORT_SECONDS < now:
                del self._seated[uid]

    def _waste(self, team: TeamName) -> None:
        if seconds := self.teams.fail(team):
            self._account.paused(team, seconds=seconds)

    def _trimmed(self, holding: Holding, leaving: Sequence[Leaving]) -> tuple[Holding | None, bool]:
        """Drop what is over; tells whether all that is left gets its room, be it by victims of those that went."""
        reclaim_index, fleet = self._roll, self._lookout.world.fleet
        kept = holding.trimmed(reclaim_index)
        if kept is None or not kept.claims or not is_short(kept, reclaim_index, fleet, leaving=leaving):
            return kept, True
        kept = inherited(holding, kept, reclaim_index, fleet, leaving=leaving)
        return kept, not is_short(kept, reclaim_index, fleet, leaving=leaving)

    def _prolonged(self, before: Holding, kept: Holding | None) -> Holding | None:
        """Give a holding more time where victims went or waiting pods were seated since the last look."""
        if kept is None or (kept.claims == before.claims and kept.targets == before.targets):
            return kept
        grace_seconds = self._longest_grace(t.uid for t in set(before.targets).difference(kept.targets))
        return replace(kept, until=max(kept.until, int(self._clock()) + grace_seconds + HOLD_SECONDS))

    def _longest_grace(self, victims: Iterable[Uid]) -> int:
        """Tell how long the last of these pods may take to end."""
        bound = self._lookout.world.policy.reclaim.longest_grace_seconds
        grace = [tenant.grace_seconds for uid in victims if (tenant := self._roll.get(uid)) is not None]
        return min(bound, max(grace, default=0))

    def _end_of(self, holding: Holding) -> int:
        """Tell until when a node keeps its room at most."""
        rules = self._lookout.world.policy.reclaim
        return min(holding.until, holding.since + rules.notice_seconds + rules.longest_grace_seconds + LONGEST_SECONDS)

    def _give_up(self, holding: Holding, *, has_room: bool) -> None:
        """Give room up. Who had it, all victims being gone, and did not come for it has itself to blame."""
        self._account.broken(
            holding.claims, node=holding.node, why="its time is over" if has_room else "the room is gone"
        )
        is_own_fault = has_room and not holding.targets
        for claim in holding.claims:
            self._paid.pop(claim.uid, None)
            if is_own_fault and (tenant := self._roll.get(claim.uid)) is not None:
                self._waste(tenant.team)
            if (seconds := self.waiting.fail(claim.uid, is_own_fault=is_own_fault)) is not None:
                self._account.gave_up(claim, seconds=seconds)

    def _calmed(self) -> list[Target]:
        chosen = self.under_way()
        ended = [target for uid, target in self._noticed.items() if uid not in chosen]
        for target in ended:
            del self._noticed[target.uid]
        return [target for target in ended if not self._roll.is_going(target.uid)]


def _says(written: Holding | None, holding: Holding) -> bool:
    """Tell whether a node names all that matters; what it names beyond that is over, and the next leader sees that."""
    if written is None or written.id != holding.id:
        return False
    targets = set(written.targets)
    is_late = written.until + HOLD_SECONDS // 2 < holding.until
    return (
        not is_late
        and set(holding.claims) <= set(written.claims)
        and all(target in targets for target in holding.targets)
    )
