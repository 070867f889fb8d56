"""Messages that wait to be sent, at a bounded rate.

Teams and departments that hold almost as many GPUs as their limit allows. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Final, NamedTuple

from webhook.addons.messages.delivery import (
    MAX_ITEMS,
    SCHEMA,
    Item,
    Message,
    MessageSubject,
    Phase,
    Severity,
    State,
    Subject,
)
from webhook.core.model.amounts import Limit, Units, Unlimited, gpus_text, plural, plural_gpus
from webhook.core.model.policy_addons import NotifyKind, NotifyTarget
from webhook.core.world.world import World
from webhook.kube.ledger.reports import written_at

SETTLE_SECONDS: Final = 30.0
"""How long use must be that high: a pod that ends and one that starts make a peak for a moment."""


class _Level(NamedTuple):
    name: str
    held: Units
    limit: Limit


def limit_states(world: World, share: Fraction) -> dict[str, State]:
    """Return each team and department that holds at least this share of a limit above 0, of all GPUs or of a model."""
    found: dict[str, State] = {}
    part, whole = share.as_integer_ratio()  # products of fractions take most of the time
    for each in _levels(world):
        if not isinstance(each.limit, Unlimited) and each.limit and each.held * whole >= each.limit * part:
            is_full = each.held >= each.limit
            left = "nothing is left" if is_full else f"{plural_gpus(each.limit - each.held)} left"
            text = f"{each.name} holds {gpus_text(each.held)} of at most {plural_gpus(each.limit)}: {left}"
            found[each.name.removeprefix("team ")] = State(
                Severity.WARNING, text, key="full" if is_full else "", settle_seconds=SETTLE_SECONDS
            )
    return found


def _levels(world: World) -> Iterator[_Level]:
    for team in world.policy.teams:
        usage = world.usage(team.name)
        yield _Level(f"team {team.name}", usage.total, team.gpus.limit)
        for model, share in team.models.items():
            yield _Level(f"team {team.name}, model {model}", usage.model(model), share.limit)
    for level in world.departments():
        of = level.department
        yield _Level(f"department {of.name}", level.total, of.gpus.limit)
        for model, share in of.models.items():
            yield _Level(f"department {of.name}, model {model}", level.model(model), share.limit)


# What one target has yet to get: at most one message of a subject in an interval, whatever happens. Pure.
#
# Memory is bounded: a subject is a team, a department or a condition, never a name of a tenant's choice, and keeps
# MAX_ITEMS items and a count. A message that was made stays as it is until it is delivered or given up, so that a
# second attempt has the same id. Times are seconds of Unix time.


GATHER_SECONDS: Final = 5.0
"""How long each of several things waits for the next: the pods of a gang are evicted one after the other …"""

GATHER_LONGEST_SECONDS: Final = 30.0
"""… and how long the first one waits at most."""

GIVE_UP_SECONDS: Final = 3600.0
"""How long a message is tried: later it is no news."""

MAX_SUBJECTS: Final = 5000
"""Subjects at a time; what comes beyond is dropped. There are a few for each team of the policy."""

MAX_KEPT: Final = 2000
"""Items of all subjects; what comes beyond is only counted."""

_ID_DIGITS: Final = 16
_WHAT: Final = {NotifyKind.EVICTIONS: ("pod", "evicted"), NotifyKind.IDLE: ("report", "of idle GPUs")}


@dataclass(slots=True)
class _Entry:
    """What is known of one subject: things that happened, or a state; `sent_state` is what people know."""

    items: list[Item] = field(default_factory=list)
    count: int = 0
    since: float = 0.0
    latest: float = 0.0
    state: State | None = None
    sent_state: State | None = None
    sent_at: float = float("-inf")

    @property
    def times(self) -> tuple[float, ...]:
        return self.since, self.latest, self.sent_at

    @property
    def is_empty(self) -> bool:
        return not self.count and self.state is None and self.sent_state is None

    @property
    def has_news(self) -> bool:
        """Whether something happened that people do not know of."""
        was, now = self.sent_state and self.sent_state.key, self.state and self.state.key
        return self.count > 0 or was != now


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends: the process, and the name of the cluster."""

    process: str
    cluster: str = ""


class Outbox:
    """The messages of one target. `dropped` counts those that it will never get."""

    def __init__(self) -> None:
        self.dropped = 0
        self._entries: dict[Subject, _Entry] = {}
        self._kept = 0
        self._made: tuple[Subject, Message, float] | None = None

    def add(self, subject: Subject, item: Item, now: float) -> None:
        """Note that something happened."""
        if (entry := self._entry(subject)) is None:
            return
        entry.since = entry.since if entry.count else now
        entry.latest = now
        entry.count += 1
        if len(entry.items) < MAX_ITEMS and self._kept < MAX_KEPT:
            entry.items.append(item)
            self._kept += 1

    def set_states(self, states: Mapping[Subject, State], now: float) -> None:
        """Note which states last now; all others are over."""
        for subject, state in states.items():
            if (entry := self._entry(subject)) is not None:
                entry.since = now if entry.state is None and entry.sent_state is None else entry.since
                entry.state = state
        for subject, entry in self._entries.items():
            if subject not in states:
                entry.state = None

    def forget_states(self) -> None:
        """Forget all states, and that people know of them: another process has them now."""
        for entry in self._entries.values():
            entry.state = entry.sent_state = None

    def next_message(
        self, target: NotifyTarget, sender: Sender, now: float, *, gather_seconds: float = GATHER_SECONDS
    ) -> Message | None:
        """Return the message to send now, again until `delivered` or `give_up` is called; None if none is due."""
        if self._made is not None and now - self._made[2] > GIVE_UP_SECONDS:
            self.give_up(now)
        if self._made is None:
            self._forget(target, now)
            due = [each for each in self._due(target, gather_seconds) if each[0] <= now]
            if due:
                _, subject = min(due)
                self._made = (subject, self._make(subject, target, sender, now), now)
        return None if self._made is None else self._made[1]

    def delivered(self, now: float) -> None:
        """Note that the target has the message."""
        if self._made is not None:
            self._entries.setdefault(self._made[0], _Entry()).sent_at = now
            self._made = None

    def give_up(self, now: float) -> None:
        """Drop the message: it is too old, or the target will never accept it. A state that lasts begins again."""
        if self._made is not None:
            self.dropped += 1
            self._entries.setdefault(self._made[0], _Entry()).sent_state = None
            self.delivered(now)

    @property
    def waiting(self) -> int:
        """How many subjects have something to say."""
        return sum(each.has_news for each in self._entries.values()) + (self._made is not None)

    def _entry(self, subject: Subject) -> _Entry | None:
        found = self._entries.get(subject)
        if found is None:
            if len(self._entries) >= MAX_SUBJECTS:
                self.dropped += 1
                return None
            found = self._entries[subject] = _Entry()
        return found

    def _forget(self, target: NotifyTarget, now: float) -> None:
        """Forget subjects of which there is nothing to say, once their interval is over, and unwanted kinds."""
        for subject, entry in list(self._entries.items()):
            # the clock may have been set back
            entry.since, entry.latest, entry.sent_at = (min(each, now) for each in entry.times)
            is_over = entry.is_empty and now - entry.sent_at >= target.interval_seconds
            if is_over or subject.kind not in target.kinds:
                self._kept -= len(entry.items)
                del self._entries[subject]

    def _due(self, target: NotifyTarget, gather_seconds: float) -> Iterator[tuple[float, Subject]]:
        """Yield from when on each subject has something to say."""
        for subject, entry in self._entries.items():
            ready = min(entry.latest + gather_seconds, entry.since + GATHER_LONGEST_SECONDS)
            if entry.state is not None:
                ready = entry.since + entry.state.settle_seconds
            earliest = max(ready, entry.sent_at + target.interval_seconds)
            if entry.has_news:
                yield earliest, subject
            elif entry.state is not None:
                yield max(earliest, entry.sent_at + target.again_seconds), subject

    def _make(self, subject: Subject, target: NotifyTarget, sender: Sender, now: float) -> Message:
        entry = self._entries[subject]
        state = entry.state or entry.sent_state
        since, until = entry.since, now
        if state is None:
            phase, state, count = Phase.HAPPENED, State(Severity.INFO, _summary(subject, entry.count)), entry.count
            items, entry.items, entry.count = entry.items, [], 0
            self._kept -= len(items)
            until = now + target.interval_seconds
        else:
            count, items = 1, list(state.items[:MAX_ITEMS])
            phase = Phase.ENDED if entry.state is None else Phase.BEGAN if entry.sent_state is None else Phase.LASTS
            if entry.state is not None:
                until = now + 2 * target.again_seconds + target.interval_seconds
            entry.sent_state = entry.state
        digest = sha256(f"{sender}\0{target.name}\0{subject}\0{phase}\0{now}".encode()).hexdigest()
        return Message(
            schema=SCHEMA,
            id=digest[:_ID_DIGITS],
            cluster=sender.cluster,
            sender=sender.process,
            created_at=written_at(now),
            subject=MessageSubject(subject.kind, subject.name),
            phase=phase,
            severity=state.severity,
            summary=state.summary,
            since=written_at(since),
            until=written_at(until),
            count=count,
            items=items,
        )


def _summary(subject: Subject, count: int) -> str:
    noun, what = _WHAT[subject.kind]
    return f"team {subject.name}: {plural(count, noun)} {what}"
