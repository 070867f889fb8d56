"""What `fairgate explain` says of one pod, and its verdict.

The outcome of a decision with its reasons, and the names of outcomes in explanations.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, assert_never

import msgspec

from webhook.cli.explain.reclaim import ClusterDetails, EvictedFor, Evictor, PastEvent
from webhook.cli.explain.subjects import Existing, PodState, Subject
from webhook.cli.queue.rows import earlier_text, holders_text, waiting_report
from webhook.core.explain.explanation import Explanation
from webhook.core.explain.line_rows import QueueRow
from webhook.core.model.amounts import NodeName, format_gpus, place_text, plural, plural_gpus, span
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.reasons import Code, Reason
from webhook.core.reclaim.holds import EvictionTarget
from webhook.core.reclaim.refused_nodes import unseen_text
from webhook.core.reclaim.snapshot import Impossible, Outlook, Possible, RoomKept
from webhook.core.reclaim.victims import Victim
from webhook.core.world.minimums import Replicas
from webhook.kube.nodes.holds import rfc3339

Word = Literal["admitted", "queued", "refused", "asked again", "not judged"]
"""The name of the outcome of a pod that would be created now."""

WORDS: Final[Mapping[Outcome, Word]] = {
    Outcome.ADMIT: "admitted",
    Outcome.QUEUE: "queued",
    Outcome.DENY: "refused",
    Outcome.RETRY: "asked again",
    Outcome.SKIP: "not judged",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with its reasons; tier and nodes where the pod is admitted."""

    outcome: Outcome
    reasons: tuple[Reason, ...]
    tier: Tier | None = None
    nodes: tuple[NodeName, ...] = ()
    warnings: tuple[Reason, ...] = ()

    @property
    def word(self) -> Word:
        """The name of the outcome."""
        return WORDS[self.outcome]


def verdict_of(decision: Decision) -> Verdict:
    """Return the verdict of a decision."""
    match decision:
        case Admit(charge=charge, node_choice=node_choice, reason=reason, warnings=warnings):
            return Verdict(Outcome.ADMIT, (reason,), charge.tier, node_choice.nodes, warnings)
        case Queue(reason=reason, warnings=warnings):
            return Verdict(Outcome.QUEUE, (reason,), warnings=warnings)
        case Deny(reasons=reasons):
            return Verdict(Outcome.DENY, reasons)
        case Retry(reason=reason):
            return Verdict(Outcome.RETRY, (reason,))
        case NotApplicable(reason=reason, warnings=warnings):
            return Verdict(Outcome.SKIP, (reason,), warnings=warnings)
        case _ as never:
            assert_never(never)


# Moves of other pods, which an add-on finds.


_PRECISE: Final = 10
"""Hours from which on they are shown as a whole number."""


class MoveReport(msgspec.Struct, rename="camel"):
    """A pod that would be evicted, and a node that has room for its replacement now."""

    pod: str
    team: str
    tier: str
    gpus: str
    from_: Annotated[str, msgspec.Meta(description="its node")] = msgspec.field(name="from")
    to: Annotated[str, msgspec.Meta(description="a node with room; the webhook may choose another one then")]
    lost_gpu_hours: Annotated[float, msgspec.Meta(description="work since its last checkpoint, or its start")]


@dataclass(frozen=True, slots=True)
class RoomByMoves:
    """Moves that would free a node for a pod on a node, and how much work would be done again."""

    node: str
    moves: tuple[MoveReport, ...]
    lost_gpu_hours: float


def hours_text(hours: float) -> str:
    """Return a number of hours for people."""
    return f"{hours:,.0f}" if hours >= _PRECISE else f"{hours:.2g}"


# The explanation of one subject, and the texts that depend on the time: reclaim, evictions, past Events.


NAMED: Final = 10
_BORROWS: Final = "It borrows: it is evicted once a team needs its share back. No eviction is announced."
"""Objects of one list that are named in text; data has all."""


@dataclass(frozen=True, slots=True)
class ExplainedSubject:
    """One subject with its explanation.

    `outlook` is what reclaim can do for it, None where it needs nothing; `evicted_for` is why it is evicted, if
    it is. `now` is in seconds of Unix time. `line` is the place of a pod that waits in the queue.
    `moves` are moves of other pods that would make room for it, None where it needs none or there are none;
    `are_moves_made`: the evictor makes them once policy's bounds allow it. `replicas` are those of its workload, where
    that is to keep some.
    """

    subject: Subject
    explanation: Explanation
    outlook: Outlook | None
    evicted_for: EvictedFor
    details: ClusterDetails
    now: int
    line: QueueRow | None = None
    moves: RoomByMoves | None = None
    are_moves_made: bool = False
    replicas: Replicas | None = None

    @property
    def is_held_up(self) -> bool:
        """Whether the pod is refused or would wait; False for one that is on a node, has ended, or is not judged."""
        existing = self.subject.existing
        if existing is not None and (existing.node or existing.state is PodState.ENDED):
            return False
        return not self.explanation.runs_now and verdict_of(self.explanation.decision).outcome is not Outcome.SKIP


def some(names: Iterable[str]) -> str:
    """Return up to ten names, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def reclaim_lines(explained: ExplainedSubject) -> Iterator[str]:
    """Yield what reclaim can do for a pod, and whether an evictor leads; of a queued pod that alone."""
    gpus = plural_gpus(explained.explanation.pod.demand.gpus)
    match explained.outlook:
        case None:
            decision, row = explained.explanation.decision, explained.line
            waits_for_borrowers = isinstance(decision, Queue) and decision.reason.code is Code.WAITS_FOR_BORROWERS
            if waits_for_borrowers or (row is not None and row.needs_evictor):
                yield _leads(explained.details.evictor)
        case RoomKept(node_hold=node_hold, targets=targets):
            since = span(max(0, explained.now - node_hold.since))
            yield f"{gpus} on {node_hold.node} are reserved until {rfc3339(node_hold.until)}; planned {since} ago"
            if targets:
                yield f"to be evicted for that: {some(map(_target, targets))}"
            yield _leads(explained.details.evictor)
        case Possible(move=move, unseen=unseen):
            if unseen:
                yield unseen_text(unseen, move.waiting)
            if not move.victims:
                yield f"{gpus} on {move.node} become free once the pods that end there are gone"
            else:
                teams = ", ".join(sorted({victim.team for victim in move.victims}))
                yield f"{gpus} can be reclaimed from {teams} on {move.node}"
                yield f"{plural(len(move.victims), 'pod')} would be evicted: {some(map(_victim, move.victims))}"
            yield _leads(explained.details.evictor)
        case Impossible(why=why):
            yield f"no GPUs are reclaimed for it: {why}"
        case _ as never:
            assert_never(never)


def move_lines(room: RoomByMoves, *, are_made: bool) -> Iterator[str]:
    """Yield which moves of other pods would make room for a pod, what they cost, and who makes them."""
    named = some(f"{move.pod} to {move.to}" for move in room.moves)
    yield f"{plural(len(room.moves), 'move')} would make room on {room.node}: {named}"
    by_policy = "the evictor makes them once policy's bounds allow it"
    who = by_policy if are_made else "no pod is moved unless an admin evicts it"
    yield f"{hours_text(room.lost_gpu_hours)} GPU-hours of work would be done again; {who}"


def line_lines(row: QueueRow, *, now: int) -> Iterator[str]:
    """Yield the place of a waiting queued pod, what it waits for, who holds that, and how long others waited."""
    since = f", for {span(max(0, now - row.waiting.created))}" if row.waiting.created else ""
    place, team, report = row.place, row.waiting.team, waiting_report(row)
    if row.is_charged:
        yield f"charged to team {team}: it stays queued until its GPUs are free{since}"
    elif place is None:
        yield f"not queued{since}"
    else:
        yield f"{place_text(place.of_team, team, place.overall)}{since}"
    yield f"waits for: {row.cause}"
    if row.holders:
        yield f"held by {holders_text(report)}"
    if earlier := earlier_text(report):
        yield earlier
    if report.stated_run_time is not None:
        yield f"stated run time: {span(report.stated_run_time)}"


def eviction_line(explained: ExplainedSubject, existing: Existing) -> str:
    """Return which eviction is announced or in progress, or that a borrowing pod may be evicted; "" for any other."""
    if existing.evicted_at:
        return f"It was evicted at {existing.evicted_at} and is ending."
    if not is_announced(explained):
        if not existing.node or existing.tier != Tier.PREEMPTIBLE:
            return ""
        text = "" if explained.replicas is None else explained.replicas.statement.text
        return f"{_BORROWS} {text[:1].upper()}{text[1:]}." if text else _BORROWS
    evicted = explained.evicted_for
    if evicted.moves_to:
        room = f", which makes room for {evicted.pod}" if evicted.pod else ""
        why = f"it moves to {evicted.moves_to}{room}"
        return f"It will be evicted at {existing.evict_at}: {why}. Save its work until then."
    pod = f" for pod {evicted.pod}" if evicted.pod else ""
    team = f" team {existing.evict_for} takes its guaranteed share back{pod}." if existing.evict_for else ""
    return f"It will be evicted at {existing.evict_at}:{team} Save its work until then."


def is_announced(explained: ExplainedSubject) -> bool:
    """Whether an eviction is announced: only of a pod that borrows, or that moves, may what is written on it be true.

    Tiers and the records of nodes are guarded; the owner of a pod may write the announcement itself.
    """
    existing = explained.subject.existing
    if existing is None or not existing.evict_at:
        return False
    return existing.tier == Tier.PREEMPTIBLE or bool(explained.evicted_for.moves_to)


def event_lines(events: Iterable[PastEvent], *, now: float) -> Iterator[str]:
    """Yield the past Events of Fairgate about an object, the latest first."""
    for each in list(events)[:NAMED]:
        times = "" if each.count == 1 else f", {each.count} times"
        yield f"{each.reason} {span(max(0.0, now - each.last))} ago{times}: {each.message}"


def _target(target: EvictionTarget) -> str:
    return f"{target.namespace}/{target.name} at {rfc3339(target.at)}"


def _victim(victim: Victim) -> str:
    return f"{victim.namespace}/{victim.name} {format_gpus(victim.demand.gpus)}"


def _leads(evictor: Evictor) -> str:
    match evictor.leader:
        case None:
            return f"whether an evictor leads is not known: {evictor.why}"
        case "":
            return f"no evictor leads, so nothing is evicted: {evictor.why}"
        case leader:
            return f"evictor {leader} leads"
