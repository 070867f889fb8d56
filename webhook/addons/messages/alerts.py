"""What one target has yet to get, as alerts of Alertmanager: what happened and what lasts, at a bounded rate. Pure.

A name of a tenant's choice is never in a label: a subject is a team, a department or a condition. So memory and the
number of messages are bounded. Texts are one line without control characters. Times are seconds of Unix time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.amounts import plural, printable, shortened
from webhook.core.model.policy_addons import NotifyKind, NotifyTarget, NotifyTemplate
from webhook.kube.ledger.reports import written_at

MAX_LINES: Final = 20
MAX_TEXT: Final = 500

GATHER_SECONDS: Final = 5.0
"""How long each of several things waits for the next: the pods of a gang are evicted one after the other …"""

GATHER_LONGEST_SECONDS: Final = 30.0
"""… and how long the first one waits at most."""

EVENT_SECONDS: Final = 900.0
"""How long what happened is an alert: what is over when Alertmanager looks, by default every 5 minutes, is not sent."""

GIVE_UP_SECONDS: Final = 3600.0
"""How long what is over is tried: later it is no news."""

MAX_SUBJECTS: Final = 5000
"""Alerts at a time; what comes beyond is dropped. There are a few for each team of the policy and each process."""

MAX_KEPT: Final = 2000
"""Lines about what happened; what comes beyond is only counted."""

_ID_DIGITS: Final = 16
_NEVER: Final = "0001-01-01T00:00:00Z"
_WHAT: Final = {NotifyKind.EVICTIONS: ("pod", "evicted"), NotifyKind.IDLE: ("report", "of idle GPUs")}
# Alertmanager puts texts into Slack's messages as they are, where `<!channel>` and `@channel` mention people
_HARMLESS: Final = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "@\u200b"})


class Severity(StrEnum):
    """How urgent it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Subject(NamedTuple):
    """What an alert is about; all of it are labels, which identify the alert.

    `process` is the one that has a trouble, `since` tells apart what happened at one time and at another.
    """

    kind: NotifyKind
    name: str
    severity: Severity = Severity.INFO
    process: str = ""
    since: str = ""


class State(NamedTuple):
    """What lasts, until it is no longer reported: a line for people, and more lines. It is news after a time."""

    summary: str
    lines: tuple[str, ...] = ()
    settle_seconds: float = 0.0


def bounded(text: str) -> str:
    """Return a text on one line, without control characters and mentions of people, cut to a length."""
    return shortened(printable(" ".join(text[: 4 * MAX_TEXT].split())).translate(_HARMLESS), MAX_TEXT)


@dataclass(slots=True)
class _Batch:
    """What happened of one subject and is no alert yet."""

    first: float
    latest: float
    count: int = 0
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Entry:
    """One alert. It lasts until `over_at`: what happened, for EVENT_SECONDS after the target was sent it."""

    state: State
    begins_at: float
    over_at: float = inf


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a target knows of one kind since the last message: the alerts that last."""

    at: float = -inf
    lasting: frozenset[Subject] = frozenset()


class Alert(NamedTuple):
    """An alert that is sent now; `ends_at` is when it ended, or is over unless it is sent again."""

    subject: Subject
    state: State
    begins_at: float
    ends_at: float
    is_over: bool


class Outbox:
    """The alerts of one target: at most one message of a kind in an interval. `dropped` counts those it never gets."""

    def __init__(self) -> None:
        self.dropped = 0
        self._entries: dict[Subject, _Entry] = {}
        self._batches: dict[Subject, _Batch] = {}
        self._sent: dict[NotifyKind, _Sent] = dict.fromkeys(NotifyKind, _Sent())
        self._tried = dict.fromkeys(NotifyKind, -inf)

    def add(self, subject: Subject, line: str, now: float) -> None:
        """Note that something happened."""
        if (batch := self._batches.get(subject)) is None:
            if len(self._batches) + len(self._entries) >= MAX_SUBJECTS:
                self.dropped += 1
                return
            batch = self._batches[subject] = _Batch(now, now)
        batch.latest = now
        batch.count += 1
        kept = sum(len(each.lines) for each in self._batches.values())
        kept += sum(len(each.state.lines) for subject, each in self._entries.items() if subject.since)
        if len(batch.lines) < MAX_LINES and kept < MAX_KEPT:
            batch.lines.append(line)

    def set_states(self, states: Mapping[Subject, State], now: float) -> None:
        """Note which states last now; all others are over."""
        for subject, state in states.items():
            if (entry := self._entries.get(subject)) is not None:
                entry.state, entry.over_at = state, inf
            elif len(self._batches) + len(self._entries) < MAX_SUBJECTS:
                self._entries[subject] = _Entry(state, now)
            else:
                self.dropped += 1
        for subject, entry in list(self._entries.items()):
            if subject not in states and not subject.since:
                entry.over_at = min(entry.over_at, now)
                if subject not in self._sent[subject.kind].lasting:
                    del self._entries[subject]

    def forget_states(self) -> None:
        """Forget all states, and that people know of them: another process has them now."""
        self._entries = {subject: entry for subject, entry in self._entries.items() if subject.since}
        for kind, sent in self._sent.items():
            self._sent[kind] = _Sent(sent.at, frozenset(each for each in sent.lasting if each.since))

    def due(self, target: NotifyTarget, now: float, *, is_end: bool = False) -> list[Alert]:
        """Return what to send now, all of the kind that waits longest; again until `delivered` or `give_up` is called.

        At the end of the process nothing that happened waits for more of its kind.
        """
        self._forget(target, now)
        for kind in sorted(target.kinds, key=lambda each: (self._tried[each], each is not NotifyKind.TROUBLE, each)):
            sent = self._sent[kind]
            is_free = is_end or not 0 <= now - sent.at < target.interval_seconds
            if is_free:
                self._close_batches(kind, inf if is_end else now)
            of_kind = ((subject, entry) for subject, entry in self._entries.items() if subject.kind is kind)
            found = {each: entry for each, entry in of_kind if entry.begins_at + entry.state.settle_seconds <= now}
            lasting = {subject for subject, entry in found.items() if entry.over_at > now}
            is_new_trouble = kind is NotifyKind.TROUBLE and not lasting <= sent.lasting  # by no tenant
            if lasting != sent.lasting:
                is_due = is_free or is_new_trouble
            else:
                is_due = not 0 <= now - sent.at < target.again_seconds
            if found and is_due:
                self._tried[kind] = now
                return [_alert(subject, entry, target, now) for subject, entry in found.items()]
        return []

    def delivered(self, alerts: Sequence[Alert], now: float) -> None:
        """Note that the target has these alerts, which are all that `due` returned."""
        self._sent[alerts[0].subject.kind] = _Sent(now, frozenset(each.subject for each in alerts if not each.is_over))
        for alert in alerts:
            entry = self._entries.get(alert.subject)
            if entry is not None and alert.is_over and entry.over_at <= now:
                del self._entries[alert.subject]
            elif entry is not None and alert.subject.since:
                entry.over_at = min(entry.over_at, now + EVENT_SECONDS)

    def give_up(self, alerts: Sequence[Alert], now: float) -> None:
        """Drop these: the target will never accept them. A state that lasts is tried again after the interval."""
        self.dropped += len(alerts)
        self._sent[alerts[0].subject.kind] = _Sent(now)
        for alert in alerts:
            if alert.is_over or alert.subject.since:
                self._entries.pop(alert.subject, None)

    @property
    def waiting(self) -> int:
        """How many alerts the target does not know of, or does not know that they are over."""
        news = (
            (subject in self._sent[subject.kind].lasting) == (entry.over_at < inf and not subject.since)
            for subject, entry in self._entries.items()
        )
        return sum(news) + len(self._batches)

    def _close_batches(self, kind: NotifyKind, now: float) -> None:
        """Make alerts of what happened, unless more of it is likely to come."""
        for subject, batch in list(self._batches.items()):
            if subject.kind is kind and min(batch.latest + GATHER_SECONDS, batch.first + GATHER_LONGEST_SECONDS) <= now:
                noun, what = _WHAT[kind]
                state = State(f"team {subject.name}: {plural(batch.count, noun)} {what}", tuple(batch.lines))
                self._entries[subject._replace(since=written_at(batch.first))] = _Entry(state, batch.first)
                del self._batches[subject]

    def _forget(self, target: NotifyTarget, now: float) -> None:
        """Forget kinds that are unwanted, and what is too old."""
        for subject, batch in list(self._batches.items()):
            # the clock may have been set back
            batch.first, batch.latest = min(batch.first, now), min(batch.latest, now)
            if subject.kind not in target.kinds:
                del self._batches[subject]
        for subject, entry in list(self._entries.items()):
            entry.begins_at = min(entry.begins_at, now)
            is_event = subject.since and entry.over_at == inf
            is_old = now - (entry.begins_at if is_event else entry.over_at) > GIVE_UP_SECONDS
            if is_old or subject.kind not in target.kinds:
                self.dropped += is_old
                del self._entries[subject]


def _alert(subject: Subject, entry: _Entry, target: NotifyTarget, now: float) -> Alert:
    lasts = EVENT_SECONDS if subject.since else 2 * target.again_seconds + target.interval_seconds
    ends_at = entry.over_at if entry.over_at < inf else now + lasts
    return Alert(subject, entry.state, entry.begins_at, ends_at, entry.over_at <= now)


def render(alerts: Sequence[Alert], target: NotifyTarget, cluster: str) -> bytes:
    """Return the body of a request, as JSON: of Alertmanager's API v2, or as Alertmanager calls its webhooks."""
    if target.template is NotifyTemplate.ALERTMANAGER:
        return msgspec.json.encode([_postable(alert, cluster) for alert in alerts])
    return msgspec.json.encode(_webhook([_received(alert, cluster) for alert in alerts], target.name))


def _postable(alert: Alert, cluster: str) -> dict[str, Any]:
    """Return an alert of Alertmanager's API v2; it is over at `endsAt` unless it is sent again."""
    subject, state = alert.subject, alert.state
    labels = {"alertname": f"Fairgate{subject.kind.capitalize()}", "severity": subject.severity, "cluster": cluster}
    labels |= {"subject": subject.name, "process": subject.process, "since": subject.since}
    annotations = {"summary": state.summary, "description": "\n".join(state.lines[:MAX_LINES])}
    return {
        "labels": {name: str(value) for name, value in sorted(labels.items()) if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": written_at(alert.begins_at),
        "endsAt": written_at(alert.ends_at),
    }


def _received(alert: Alert, cluster: str) -> dict[str, Any]:
    """Return an alert as a webhook of Alertmanager gets it: one that lasts has no end."""
    postable = _postable(alert, cluster)
    fingerprint = sha256(msgspec.json.encode(postable["labels"])).hexdigest()[:_ID_DIGITS]
    changed = {"status": "resolved"} if alert.is_over else {"status": "firing", "endsAt": _NEVER}
    return {**postable, **changed, "generatorURL": "", "fingerprint": fingerprint}


def _webhook(alerts: Sequence[Mapping[str, Any]], receiver: str) -> dict[str, Any]:
    """Return a group of alerts of one kind in the format that Alertmanager sends to webhooks, version 4."""
    group = {name: alerts[0]["labels"][name] for name in ("alertname", "cluster") if name in alerts[0]["labels"]}
    named = ", ".join(f'{name}="{value}"' for name, value in group.items())
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{named}}}",
        "truncatedAlerts": 0,
        "status": "firing" if any(each["status"] == "firing" for each in alerts) else "resolved",
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": _common([each["labels"] for each in alerts]),
        "commonAnnotations": _common([each["annotations"] for each in alerts]),
        "externalURL": "",
        "alerts": alerts,
    }


def _common(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return dict(sorted(set.intersection(*(set(pairs.items()) for pairs in each))))
