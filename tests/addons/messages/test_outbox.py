"""What a target gets, when, and in which format: virtual time, no I/O."""

import json
import re
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.addons.messages.made import BEHIND, EVICTIONS, NOW, TARGET, TROUBLE, evicted
from tests.docs import pages
from tests.examples import examples
from webhook.addons.messages.alerts import (
    EVENT_SECONDS,
    GATHER_LONGEST_SECONDS,
    GATHER_SECONDS,
    GIVE_UP_SECONDS,
    MAX_KEPT,
    MAX_LINES,
    MAX_SUBJECTS,
    MAX_TEXT,
    Alert,
    Outbox,
    Severity,
    State,
    Subject,
    bounded,
    render,
)
from webhook.core.model.policy_addons import NotifyKind, NotifyTemplate

ALERTMANAGER = replace(TARGET, template=NotifyTemplate.ALERTMANAGER)
INTERVAL = TARGET.interval_seconds
LIMIT = Subject(NotifyKind.LIMITS, "vision", Severity.WARNING)


@dataclass
class Receiver:
    """A target that takes messages once a second, or refuses them for a while."""

    outbox: Outbox = field(default_factory=Outbox)
    target: object = TARGET
    now: float = NOW
    got: list = field(default_factory=list)
    is_up: bool = True

    def run(self, seconds, *, step=1):
        for _ in range(0, int(seconds), step):
            self.now += step
            found = self.outbox.due(self.target, self.now)
            if found and self.is_up:
                self.got.append((self.now, json.loads(render(found, self.target, "east")), found))
                self.outbox.delivered(found, self.now)
        return self

    def said(self):
        """When what was said, since the begin."""
        return [(at - NOW, each.state.summary, each.is_over) for at, _, found in self.got for each in found]


def test_what_happens_within_seconds_is_one_alert_that_ends_after_a_while():
    receiver = Receiver()
    for number in range(3):
        receiver.outbox.add(EVICTIONS, evicted(f"pod-{number}"), receiver.now)
        receiver.run(1)
    receiver.run(2 * INTERVAL)
    summary, after_the_last = "team vision: 3 pods evicted", 2 + GATHER_SECONDS
    assert receiver.said() == [(after_the_last, summary, False), (after_the_last + EVENT_SECONDS, summary, True)]
    [alert] = receiver.got[0][1]["alerts"]
    assert [line.split()[1] for line in alert["annotations"]["description"].split("\n")] == [
        "vision/pod-0",
        "vision/pod-1",
        "vision/pod-2",
    ]


def test_what_goes_on_and_on_is_sent_after_a_while_and_once_in_an_interval():
    receiver = Receiver()
    for _ in range(100):
        receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
        receiver.run(1)
    receiver.run(INTERVAL)
    assert [(at - NOW, [each.state.summary for each in found]) for at, _, found in receiver.got] == [
        (GATHER_LONGEST_SECONDS, ["team vision: 30 pods evicted"]),
        (GATHER_LONGEST_SECONDS + INTERVAL, ["team vision: 30 pods evicted", "team vision: 70 pods evicted"]),
    ]
    assert receiver.got[1][1]["status"] == "firing"


def test_a_state_begins_lasts_and_ends():
    receiver = Receiver()
    receiver.outbox.set_states({LIMIT: BEHIND}, receiver.now)
    receiver.run(5 * 3600)
    receiver.outbox.set_states({}, receiver.now)
    receiver.run(3600)
    statuses = [each["status"] for _, each, _ in receiver.got]
    assert statuses == ["firing", "firing", "resolved"]
    assert len({each["alerts"][0]["startsAt"] for _, each, _ in receiver.got}) == 1


def test_alertmanager_gets_a_state_in_each_interval_and_would_end_it_by_itself():
    receiver = Receiver(target=ALERTMANAGER)
    receiver.outbox.set_states({LIMIT: BEHIND}, receiver.now)
    receiver.run(5 * INTERVAL)
    assert len(receiver.got) == 5
    assert all(each.ends_at == at + 3 * INTERVAL for at, _, [each] in receiver.got)


def test_a_state_is_sent_only_once_it_has_lasted():
    receiver, state = Receiver(), BEHIND._replace(settle_seconds=60)
    for lasting, seconds in (({TROUBLE: state}, 50), ({}, 1), ({TROUBLE: state}, 58)):
        receiver.outbox.set_states(lasting, receiver.now)
        receiver.run(seconds)
    assert receiver.got == []
    receiver.run(5)
    assert len(receiver.got) == 1


def test_new_trouble_does_not_wait_for_the_interval_and_a_limit_does():
    receiver = Receiver()
    other = TROUBLE._replace(process="b"), LIMIT._replace(name="nlp")
    receiver.outbox.set_states({TROUBLE: BEHIND, LIMIT: BEHIND}, receiver.now)
    receiver.run(10)
    receiver.outbox.set_states(dict.fromkeys((TROUBLE, LIMIT, *other), BEHIND), receiver.now)
    receiver.run(INTERVAL)
    assert [(at - NOW, sorted(each.subject.kind for each in found)) for at, _, found in receiver.got] == [
        (1, ["trouble"]),
        (2, ["limits"]),
        (11, ["trouble"] * 2),
        (2 + INTERVAL, ["limits"] * 2),
    ]


def test_a_kind_that_the_target_does_not_take_keeps_no_other_back():
    outbox = Outbox()
    outbox.set_states({TROUBLE: BEHIND, LIMIT: BEHIND}, NOW)
    outbox.add(EVICTIONS, evicted(), NOW)
    asked = [outbox.due(TARGET, NOW + 10 + turn)[0].subject.kind for turn in range(4)]
    assert asked == ["trouble", "evictions", "limits", "trouble"]


def test_other_numbers_of_the_same_state_are_no_news():
    receiver = Receiver()
    for summary in ("by 1", "by 17 more"):
        receiver.outbox.set_states({LIMIT: State(summary)}, receiver.now)
        receiver.run(2 * INTERVAL)
    assert [each[1] for each in receiver.said()] == ["by 1"]


def test_a_state_that_another_process_has_now_does_not_end():
    receiver = Receiver()
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(10)
    receiver.outbox.forget_states()
    receiver.run(7200)
    assert len(receiver.got) == 1
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(10)
    assert [is_over for _, _, is_over in receiver.said()] == [False, False], "it begins again once it leads again"


def test_what_fails_is_the_same_alert_until_it_is_given_up_after_an_hour():
    receiver = Receiver(is_up=False)
    receiver.outbox.add(EVICTIONS, evicted("old"), receiver.now)
    receiver.run(30)
    [tried] = receiver.outbox.due(TARGET, receiver.now)
    receiver.outbox.add(EVICTIONS, evicted("next"), receiver.now)
    receiver.run(GIVE_UP_SECONDS - 31)
    again, _ = receiver.outbox.due(TARGET, receiver.now)
    assert (again.subject, again.state) == (tried.subject, tried.state)
    receiver.run(2)
    assert receiver.outbox.dropped == 1
    receiver.is_up = True
    receiver.run(1)
    [(_, message, _)] = receiver.got
    assert "vision/next" in message["commonAnnotations"]["description"]


def test_what_a_target_rejects_for_good_is_dropped_and_a_state_is_tried_again():
    outbox = Outbox()
    outbox.add(EVICTIONS, evicted(), NOW)
    outbox.set_states({LIMIT: BEHIND}, NOW)
    for _ in range(2):
        outbox.give_up(outbox.due(TARGET, NOW + 10), NOW + 10)
    assert (outbox.dropped, outbox.due(TARGET, NOW + 20)) == (2, [])
    assert [each.subject for each in outbox.due(TARGET, NOW + 10 + INTERVAL)] == [LIMIT]


def test_at_the_end_nothing_that_happened_waits():
    receiver = Receiver()
    receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
    receiver.run(10)
    receiver.outbox.add(EVICTIONS, evicted("last"), receiver.now)
    assert not receiver.outbox.due(TARGET, receiver.now)
    *_, last = receiver.outbox.due(TARGET, receiver.now, is_end=True)
    assert "vision/last" in last.state.lines[0]


def test_subjects_and_lines_are_bounded_and_what_is_beyond_is_counted():
    outbox = Outbox()
    for number in range(MAX_SUBJECTS + 5):
        for _ in range(2 if number < MAX_KEPT else 1):
            outbox.add(Subject(NotifyKind.EVICTIONS, f"t{number}"), evicted(), NOW)
    assert (outbox.waiting, outbox.dropped) == (MAX_SUBJECTS, 5)
    found = outbox.due(TARGET, NOW + 10)
    assert sum(len(each.state.lines) for each in found) == MAX_KEPT
    assert found[0].state.summary == "team t0: 2 pods evicted"


def test_kinds_that_are_unwanted_are_forgotten_at_once():
    outbox = Outbox()
    outbox.add(EVICTIONS, evicted(), NOW)
    assert outbox.due(replace(TARGET, kinds=frozenset({NotifyKind.TROUBLE})), NOW + 10) == []
    assert outbox.due(TARGET, NOW + 100) == []


def test_a_clock_that_is_set_back_stops_no_messages():
    receiver = Receiver()
    for _ in range(3):
        receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
        receiver.now -= 86_400
        receiver.run(10)
    assert [is_over for _, _, is_over in receiver.said()].count(False) >= 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["vision", "nlp"])),
        st.tuples(st.just("state"), st.booleans()),
        st.tuples(st.just("up"), st.booleans()),
        st.tuples(st.just("run"), st.integers(1, 1000)),
    ),
    max_size=30,
)


@examples(100)
@given(steps=STEPS)
def test_whatever_happens_nothing_is_lost_or_doubled_and_no_interval_has_two(steps):
    receiver = Receiver(target=replace(TARGET, repeat_seconds=100_000))
    added, lasts = 0, False
    for step, value in steps:
        match step:
            case "add":
                receiver.outbox.add(EVICTIONS._replace(name=value), evicted(), receiver.now)
                added += 1
            case "state":
                lasts = value
                receiver.outbox.set_states({LIMIT: BEHIND} if value else {}, receiver.now)
            case "up":
                receiver.is_up = value
            case _:
                receiver.run(min(value, 600) if not receiver.is_up else value, step=10)
                receiver.is_up = True
    receiver.is_up = True
    receiver.run(4 * INTERVAL, step=10)
    assert (receiver.outbox.dropped, receiver.outbox.waiting) == (0, 0)
    begun, at_of, is_known = {}, {}, False
    for at, _, found in receiver.got:
        kind = found[0].subject.kind
        assert at - at_of.get(kind, -INTERVAL) >= INTERVAL
        at_of[kind] = at
        begun |= {each.subject: int(re.findall(r"\d+", each.state.summary)[0]) for each in found if each.subject.since}
        if kind is NotifyKind.LIMITS:
            is_known = not found[0].is_over
    assert sum(begun.values()) == added
    assert is_known == lasts


def test_the_formats_are_those_of_alertmanager():
    receiver, api = Receiver(), Receiver(target=ALERTMANAGER)
    for each in (receiver, api):
        each.outbox.set_states({TROUBLE: BEHIND}, NOW)
        each.run(1)
    [(_, message, _)], [(_, posted, _)] = receiver.got, api.got
    labels = {"alertname": "FairgateTrouble", "severity": "critical", "cluster": "east"}
    labels |= {"subject": "ledger", "process": "a"}
    annotations = {"summary": "the ledger is behind", "description": "behind"}
    alert = {"labels": labels, "annotations": annotations, "startsAt": "2026-11-26T02:10:00Z"}
    assert posted == [{**alert, "endsAt": "2026-11-26T02:40:01Z"}]
    group = {"alertname": "FairgateTrouble", "cluster": "east"}
    [received] = message.pop("alerts")
    assert message == {
        "version": "4",
        "groupKey": '{}:{alertname="FairgateTrouble", cluster="east"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "t",
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
    }
    assert len(received.pop("fingerprint")) == 16
    assert received == {**alert, "endsAt": "0001-01-01T00:00:00Z", "status": "firing", "generatorURL": ""}


def test_the_page_shows_the_format():
    [shown] = re.findall(
        r"```json\n(.*?)```", (pages.ROOT / "docs" / "tasks" / "notify.md").read_text(), flags=re.DOTALL
    )
    subject = EVICTIONS._replace(since="2026-11-26T02:10:00Z")
    alert = Alert(subject, State("team vision: 1 pod evicted", (evicted(),)), NOW, NOW + EVENT_SECONDS, is_over=False)
    assert json.loads(render([alert], replace(TARGET, name="on-call"), "gpu-east")) == json.loads(shown)


HOSTILE = st.one_of(
    st.text(max_size=5000),
    st.sampled_from(["<!channel>", "<https://evil.example|click>", "@everyone", "\u202eevil", "a\n\n• b"]),
)


@given(text=HOSTILE)
def test_whatever_a_tenant_writes_is_a_short_line_that_mentions_no_one(text):
    found = bounded(text)
    assert len(found) <= MAX_TEXT
    assert found.replace("\u200b", "").isprintable()
    assert not re.search(r"[<>]|@(?!\u200b)", found)


def test_a_message_has_so_many_lines():
    receiver = Receiver()
    for number in range(MAX_LINES + 5):
        receiver.outbox.add(EVICTIONS, evicted(f"p{number}"), receiver.now)
    receiver.run(10)
    assert receiver.got[0][1]["commonAnnotations"]["description"].count("\n") == MAX_LINES - 1
