"""What a target gets, and when: virtual time, no I/O."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.addons.messages.made import BEHIND, EVICTIONS, NOW, TARGET, TROUBLE, evicted
from tests.examples import examples
from webhook.addons.messages.delivery import MAX_ITEMS, Phase, Subject
from webhook.addons.messages.outbox import (
    GATHER_LONGEST_SECONDS,
    GATHER_SECONDS,
    GIVE_UP_SECONDS,
    MAX_KEPT,
    MAX_SUBJECTS,
    Outbox,
    Sender,
)
from webhook.core.model.policy_addons import NotifyKind, NotifyTemplate
from webhook.kube.ledger.reports import written_at

SENDER = Sender("pod_1", "east")


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
            found = self.outbox.next_message(self.target, SENDER, self.now)
            if found is not None and self.is_up:
                self.outbox.delivered(self.now)
                self.got.append((self.now, found))
        return self

    def phases(self):
        return [message.phase for _, message in self.got]


def test_what_happens_within_seconds_is_one_message():
    receiver = Receiver()
    for number in range(3):
        receiver.outbox.add(EVICTIONS, evicted(f"pod-{number}"), receiver.now)
        receiver.run(1)
    receiver.run(60)
    [(at, message)] = receiver.got
    assert at == NOW + 2 + GATHER_SECONDS, "after the last one"
    assert (message.count, message.summary) == (3, "team vision: 3 pods evicted")
    assert [each.name for each in message.items] == ["pod-0", "pod-1", "pod-2"]
    assert (message.sender, message.cluster, message.schema) == ("pod_1", "east", "fairgate.dev/notify/v1")


def test_what_happens_later_waits_for_the_interval():
    receiver = Receiver()
    for _ in range(100):
        receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
        receiver.run(10)
    receiver.run(600)
    assert [message.count for _, message in receiver.got] == [1, 60, 39]
    assert [at - NOW for at, _ in receiver.got] == [5, 605, 1205]
    assert len(receiver.got[1][1].items) == MAX_ITEMS


def test_a_state_begins_lasts_and_ends():
    receiver = Receiver()
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(5 * 3600)
    receiver.outbox.set_states({}, receiver.now)
    receiver.run(3600)
    assert receiver.phases() == [Phase.BEGAN, Phase.LASTS, Phase.ENDED]
    began, lasts, ended = (message for _, message in receiver.got)
    assert began.since == lasts.since == ended.since
    assert {each.severity for each in (began, lasts, ended)} == {BEHIND.severity}
    assert began.until > lasts.created_at, "Alertmanager keeps it until then"
    assert ended.until == ended.created_at


def test_alertmanager_gets_a_state_in_each_interval():
    receiver = Receiver(target=replace(TARGET, template=NotifyTemplate.ALERTMANAGER))
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(3000)
    assert receiver.phases() == [Phase.BEGAN, *[Phase.LASTS] * 4]


def test_a_state_is_sent_only_once_it_has_lasted():
    receiver = Receiver()
    state = BEHIND._replace(settle_seconds=60)
    receiver.outbox.set_states({TROUBLE: state}, receiver.now)
    receiver.run(50)
    receiver.outbox.set_states({}, receiver.now)
    receiver.run(1)
    receiver.outbox.set_states({TROUBLE: state}, receiver.now)
    receiver.run(58)
    assert receiver.got == []
    receiver.run(5)
    assert receiver.phases() == [Phase.BEGAN]


def test_a_change_in_kind_is_news_and_other_numbers_are_not():
    receiver = Receiver()
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(700)
    receiver.outbox.set_states({TROUBLE: BEHIND._replace(summary="by 17 more")}, receiver.now)
    receiver.run(700)
    assert receiver.phases() == [Phase.BEGAN]
    receiver.outbox.set_states({TROUBLE: BEHIND._replace(key="two processes")}, receiver.now)
    receiver.run(2)
    assert receiver.phases() == [Phase.BEGAN, Phase.LASTS]


def test_a_state_that_another_process_has_now_does_not_end():
    receiver = Receiver()
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(10)
    receiver.outbox.forget_states()
    receiver.run(7200)
    assert receiver.phases() == [Phase.BEGAN]


def test_a_message_that_fails_stays_as_it_was_and_what_comes_is_in_the_next():
    receiver = Receiver(is_up=False)
    receiver.outbox.add(EVICTIONS, evicted("first"), receiver.now)
    receiver.run(30)
    tried = receiver.outbox.next_message(TARGET, SENDER, receiver.now)
    receiver.outbox.add(EVICTIONS, evicted("second"), receiver.now)
    receiver.run(600)
    receiver.is_up = True
    receiver.run(1200)
    assert receiver.got[0][1] == tried
    assert [[each.name for each in message.items] for _, message in receiver.got] == [["first"], ["second"]]


def test_a_message_is_given_up_after_an_hour_and_the_next_one_is_sent():
    receiver = Receiver(is_up=False)
    receiver.outbox.add(EVICTIONS, evicted("old"), receiver.now)
    receiver.run(GATHER_SECONDS + GIVE_UP_SECONDS)
    receiver.outbox.add(EVICTIONS, evicted("new"), receiver.now)
    assert receiver.outbox.dropped == 0
    receiver.is_up = True
    receiver.run(1)
    receiver.run(700)
    assert receiver.outbox.dropped in {0, 1}
    names = [each.name for _, message in receiver.got for each in message.items]
    assert names[-1] == "new"


def test_a_state_whose_message_was_dropped_begins_again_once_the_target_is_back():
    receiver = Receiver(is_up=False)
    receiver.outbox.set_states({TROUBLE: BEHIND}, receiver.now)
    receiver.run(GIVE_UP_SECONDS + 10)
    receiver.is_up = True
    receiver.run(700)
    assert receiver.phases() == [Phase.BEGAN]
    assert (receiver.outbox.dropped, receiver.got[0][1].since) == (1, written_at(NOW))


def test_what_a_target_rejects_for_good_is_dropped():
    outbox = Outbox()
    outbox.add(EVICTIONS, evicted(), NOW)
    assert outbox.next_message(TARGET, SENDER, NOW + 10) is not None
    outbox.give_up(NOW + 10)
    assert (outbox.dropped, outbox.waiting) == (1, 0)
    assert outbox.next_message(TARGET, SENDER, NOW + 3600) is None


def test_subjects_are_bounded():
    outbox = Outbox()
    for number in range(MAX_SUBJECTS + 5):
        outbox.add(Subject(NotifyKind.EVICTIONS, f"t{number}"), evicted(), NOW)
    assert (outbox.waiting, outbox.dropped) == (MAX_SUBJECTS, 5)


def test_items_of_all_subjects_are_bounded_and_what_is_beyond_is_counted():
    receiver, teams = Receiver(), MAX_KEPT // MAX_ITEMS + 10
    for _ in range(2):  # what was sent makes room again
        receiver.got = []
        for number in range(teams):
            for _ in range(MAX_ITEMS):
                receiver.outbox.add(Subject(NotifyKind.EVICTIONS, f"t{number}"), evicted(), receiver.now)
        receiver.run(2 * teams + TARGET.interval_seconds)
        assert sum(len(message.items) for _, message in receiver.got) == MAX_KEPT
        assert sum(message.count for _, message in receiver.got) == teams * MAX_ITEMS


def test_subjects_are_forgotten_after_their_interval_and_kinds_that_are_unwanted_at_once():
    outbox = Outbox()
    outbox.add(EVICTIONS, evicted(), NOW)
    outbox.set_states({TROUBLE: BEHIND}, NOW)
    only_trouble = replace(TARGET, kinds=frozenset({NotifyKind.TROUBLE}))
    message = outbox.next_message(only_trouble, SENDER, NOW + 10)
    assert message.subject.kind == NotifyKind.TROUBLE
    outbox.delivered(NOW + 10)
    assert outbox.next_message(TARGET, SENDER, NOW + 100) is None, "the eviction was forgotten"


def test_a_clock_that_is_set_back_stops_no_messages():
    receiver = Receiver()
    receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
    receiver.run(10)
    receiver.now -= 86_400
    receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
    receiver.run(700)
    assert len(receiver.got) == 2
    receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
    receiver.now -= 86_400
    receiver.run(700)
    assert len(receiver.got) == 3


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
                receiver.outbox.add(Subject(NotifyKind.EVICTIONS, value), evicted(), receiver.now)
                added += 1
            case "state":
                lasts = value
                receiver.outbox.set_states({TROUBLE: BEHIND} if value else {}, receiver.now)
            case "up":
                receiver.is_up = value
            case _:
                receiver.run(min(value, 600) if not receiver.is_up else value, step=10)
                receiver.is_up = True
    receiver.is_up = True
    receiver.run(2000, step=10)
    assert receiver.outbox.dropped == 0
    assert sum(each.count for _, each in receiver.got if each.phase is Phase.HAPPENED) == added
    assert len({each.id for _, each in receiver.got}) == len(receiver.got)
    by_subject = {}
    for at, each in receiver.got:
        before = by_subject.setdefault(each.subject, [])
        assert not before or at - before[-1] >= TARGET.interval_seconds
        before.append(at)
    states = [each.phase for _, each in receiver.got if each.subject.kind is NotifyKind.TROUBLE]
    assert states == [Phase.BEGAN, Phase.ENDED] * (len(states) // 2) + [Phase.BEGAN] * lasts
    assert receiver.outbox.waiting == 0


def test_what_goes_on_and_on_is_sent_after_a_while():
    receiver = Receiver()
    for _ in range(60):
        receiver.outbox.add(EVICTIONS, evicted(), receiver.now)
        receiver.run(1)
    [(at, message)] = receiver.got
    assert (at, message.count) == (NOW + GATHER_LONGEST_SECONDS, 30)
