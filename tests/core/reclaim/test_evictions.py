"""The table of evictions: every state, every transition, and invariants in any order of transitions."""

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.examples import examples
from webhook.core.reclaim.evictions import RATE_SECONDS, TRANSITIONS, Evictions, Progress
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold

NODES = ("n0", "n1")
CLAIM = Beneficiary("b", "team-b", "b")
VICTIM = EvictionTarget("a", "team-a", "a", "b", 0)
HOLD = NodeHold("h", "n0", 0, (CLAIM,), (VICTIM,))


def stays(_uid):
    return False


def yes(_uid):
    return True


def planned(table):
    table.keep("n0", HOLD, is_going=stays)


def written(table):
    table.written(HOLD)


def noticed(table):
    table.noticed(VICTIM, "n0")


def sent(table):
    assert table.send("a", "n0")


def accepted(table):
    table.accept("a", now=5, lost_by="team-a", lost_for="team-b")


def refused(table):
    table.refuse("a")


def put_off(table):
    table.put_off("a", now=0, seconds=9)


def gone(table):
    table.gone("a")


def ended(table):
    """The hold ends while the victim runs."""
    table.keep("n0", None, is_going=stays)


def placed(table):
    table.keep("n0", None, is_going=yes)
    table.end_finished(yes, now=0)


def unused(table):
    table.keep("n0", None, is_going=yes)
    table.end_finished(stays, now=0)


def expired(table):
    table.keep("n0", HOLD.without("a"), is_going=yes)
    table.accept("a", now=5, lost_by="team-a", lost_for="team-b")
    assert table.expire(before=5) == ["a"]


REACHED = {
    Progress.PLANNED: (planned,),
    Progress.HELD: (planned, written),
    Progress.NOTICED: (planned, written, noticed),
    Progress.SENT: (planned, written, sent),
    Progress.GONE: (planned, written, sent, gone),
    Progress.PLACED: (planned, written, sent, accepted, gone, placed),
    Progress.GIVEN_UP: (planned, ended),
}
WALKS = {
    (Progress.PLANNED, Progress.HELD): (written,),
    (Progress.PLANNED, Progress.GONE): (gone,),
    (Progress.PLANNED, Progress.GIVEN_UP): (ended,),
    (Progress.HELD, Progress.NOTICED): (noticed,),
    (Progress.HELD, Progress.SENT): (sent,),
    (Progress.HELD, Progress.GONE): (gone,),
    (Progress.HELD, Progress.GIVEN_UP): (ended,),
    (Progress.NOTICED, Progress.SENT): (sent,),
    (Progress.NOTICED, Progress.GONE): (gone,),
    (Progress.NOTICED, Progress.GIVEN_UP): (ended,),
    (Progress.SENT, Progress.PLANNED): (ended, planned, put_off),
    (Progress.SENT, Progress.HELD): (put_off,),
    (Progress.SENT, Progress.NOTICED): (noticed, put_off),
    (Progress.SENT, Progress.GONE): (accepted, gone),
    (Progress.SENT, Progress.GIVEN_UP): (refused,),
    (Progress.GONE, Progress.PLACED): (placed,),
    (Progress.GONE, Progress.GIVEN_UP): (unused,),
}


def walked(*events):
    table = Evictions()
    for event in events:
        event(table)
    return table


def test_every_legal_transition_is_tested():
    assert set(WALKS) == {(before, after) for before, steps in TRANSITIONS.items() for after in steps}
    assert set(REACHED) == set(Progress) == set(TRANSITIONS)


@pytest.mark.parametrize("state", Progress)
def test_every_state_is_reached(state):
    assert walked(*REACHED[state]).get("a").state is state


@pytest.mark.parametrize(("before", "after"), WALKS)
def test_a_legal_step_is_taken(before, after):
    assert walked(*REACHED[before], *WALKS[before, after]).get("a").state is after


@pytest.mark.parametrize("state", sorted(set(Progress) - {Progress.HELD, Progress.NOTICED}))
def test_a_victim_is_sent_from_no_other_state(state):
    table = walked(*REACHED[state])
    assert not table.send("a", "n0")
    assert table.get("a").state is state


def test_a_victim_is_sent_for_the_node_that_lists_it():
    assert not walked(planned, written).send("a", "n1")


@pytest.mark.parametrize("state", sorted(set(Progress) - {Progress.SENT}))
def test_a_step_that_is_not_legal_is_refused(state):
    table = walked(*REACHED[state])
    for event in (put_off, gone, refused, written, lambda table: table.end_finished(stays, now=0)):
        before = table.get("a")
        event(table)
        after = table.get("a")
        assert after is None or after.state is before.state or after.state in TRANSITIONS[before.state]


def test_an_accepted_eviction_that_never_shows_is_given_up_and_the_victim_may_be_chosen_again():
    table = walked(planned, written, sent, expired)
    assert (table.get("a").state, dict(table.awaited())) == (Progress.GIVEN_UP, {})
    planned(table)
    assert table.get("a").state is Progress.PLANNED


def test_a_victim_that_is_still_listed_is_sent_again():
    table = walked(planned, written, sent, accepted)
    assert table.expire(before=5) == ["a"]
    assert table.send("a", "n0")
    assert not table.awaited()


def test_an_eviction_counts_for_a_minute_and_once():
    table = walked(planned, written)
    assert table.losses({"a": "team-a"}.get, now=5) == {"team-a": 1}
    for event in (sent, accepted, gone, placed):
        event(table)
        assert table.losses({"a": "team-a"}.get, now=5) == {"team-a": 1}
    table.end_finished(yes, now=5 + RATE_SECONDS)
    assert (table.losses({}.get, now=5 + RATE_SECONDS), table.get("a")) == ({}, None)


def test_an_eviction_that_is_put_off_again_counts_from_the_first_time():
    table = walked(planned, written, sent)
    assert table.put_off("a", now=10, seconds=2) == 0
    sent(table)
    assert table.put_off("a", now=45, seconds=2) == 35
    assert table.next_due() == [47]


@pytest.mark.parametrize("answer", [refused, put_off])
def test_a_victim_whose_room_is_used_before_the_answer_comes_stays_in_the_table_until_then(answer):
    """The watch may be faster than the response, and the pod that waits for the room is bound at once."""
    table, now = Evictions(), 1_900_000_000
    for event in (planned, written, sent, gone):
        event(table)
    table.keep("n0", None, is_going=yes)
    for _ in range(2):
        table.end_finished(yes, now=now)
    assert table.get("a").state is Progress.PLACED
    table.accept("a", now=now, lost_by="team-a", lost_for="team-b")
    assert table.losses(lambda _: None, now=now + 1) == {"team-a": 1}, "it counts like any other"
    table.end_finished(yes, now=now + RATE_SECONDS)
    assert table.get("a") is None
    for event in (planned, written, sent, gone):
        event(table)
    table.keep("n0", None, is_going=yes)
    table.end_finished(yes, now=now)
    answer(table)
    table.end_finished(yes, now=now)
    assert table.get("a") is None


def test_a_notice_that_arrives_after_the_end_is_taken_back_once():
    table = walked(planned, written, ended)
    table.end_finished(stays, now=0)
    noticed(table)
    assert (table.take_withdrawn(), table.take_withdrawn()) == ([VICTIM], [])


def test_the_teams_that_evictions_served_are_known_until_the_room_is_used():
    table = walked(planned, written, sent, accepted, gone)
    assert table.beneficiaries() == {"b": "team-b"}
    placed(table)
    assert table.beneficiaries() == {}


def test_of_two_holds_that_list_one_victim_the_first_counts():
    table = Evictions()
    for node in NODES:
        table.pick_up(NodeHold(node, node, 0, (CLAIM,), (VICTIM,)), noticed=stays)
    assert [hold.targets for hold in table.holds.values()] == [(VICTIM,), ()]


uids = st.sampled_from(["a0", "a1", "a2"])
nodes = st.sampled_from(NODES)


class Lives(RuleBasedStateMachine):
    """A leader, its API server and its watch, in any order; leaders may crash."""

    def __init__(self):
        super().__init__()
        self.table = Evictions()
        self.ids = itertools.count()
        self.there = {"a0", "a1", "a2"}
        self.noticed = set()
        self.written = {}
        self.asked = set()  # that were not answered
        self.accepted = set()  # that the watch has not shown
        self.states = {}
        self.now = 1_900_000_000.0

    def is_going(self, uid):
        return uid not in self.there or uid in self.accepted

    @rule(node=nodes, uid=uids)
    def plan(self, node, uid):
        if uid not in self.table.listed() and not self.is_going(uid):
            hold = self.table.holds.get(node) or NodeHold(f"h{next(self.ids)}", node, 0, ())
            beneficiary = Beneficiary(f"b{next(self.ids)}", "team-b", "b")
            target = EvictionTarget(uid, "team-a", uid, beneficiary.uid, 0)
            made = NodeHold(hold.id, node, 0, (*hold.beneficiaries, beneficiary), (*hold.targets, target))
            self.table.keep(node, made, is_going=self.is_going)

    @rule(node=nodes)
    def write(self, node):
        hold = self.written[node] = self.table.holds.get(node)
        if hold is not None:
            self.table.written(hold)

    @initialize(node=st.tuples(nodes, nodes, nodes))
    def begin(self, node):
        """Rules alone would seldom plan, write and ask for the same pod on the same node."""
        for on, uid in zip(node, ("a0", "a1", "a2"), strict=True):
            self.plan(on, uid)
            self.write(on)

    def target(self, number, holds):
        """One of the targets of holds, and its node."""
        listed = [(target, node) for node, hold in holds.items() if hold for target in hold.targets]
        return listed[number % len(listed)] if listed else (None, None)

    @rule(number=st.integers(0, 9))
    def notice(self, number):
        target, node = self.target(number, self.written)
        if target is not None and target.uid in self.there:
            self.noticed.add(target.uid)
            self.table.noticed(target, node)

    @rule(number=st.integers(0, 9))
    def ask(self, number):
        target, node = self.target(number, self.table.holds)
        if target is None or self.is_going(target.uid):
            return
        uid = target.uid
        if self.table.send(uid, node):
            assert uid not in self.asked | self.accepted, "it is not evicted twice"
            written = self.written.get(node)
            assert written is not None
            assert any(target.uid == uid for target in written.targets), "its node lists it"
            self.asked.add(uid)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), answer=st.sampled_from(["accept", "refuse", "later"]))
    def answer(self, data, answer):
        uid = data.draw(st.sampled_from(sorted(self.asked)))
        self.asked.discard(uid)
        match answer:
            case "accept":
                self.table.accept(uid, now=self.now, lost_by="team-a", lost_for="team-b")
                self.accepted |= {uid} & self.there
            case "refuse":
                self.table.refuse(uid)
            case "later":
                self.table.put_off(uid, now=self.now, seconds=0)

    @rule(uid=uids)
    def watch(self, uid):
        self.there.discard(uid)
        self.accepted.discard(uid)
        self.table.gone(uid)

    @rule(node=nodes)
    def tidy(self, node):
        """Drop finished targets; the rest of the hold is dropped if nothing is left to evict."""
        if (hold := self.table.holds.get(node)) is not None:
            left = tuple(t for t in hold.targets if not self.is_going(t.uid))
            kept = NodeHold(hold.id, node, 0, hold.beneficiaries, left) if left else None
            self.table.keep(node, kept, is_going=self.is_going)

    @rule(node=nodes)
    def discard_draft(self, node):
        self.table.keep(node, None, is_going=self.is_going)

    @rule(seconds=st.integers(0, 100))
    def expire(self, seconds):
        self.now += seconds
        for uid in self.table.expire(before=self.now - 30):
            self.accepted.discard(uid)

    @rule(is_placed=st.booleans())
    def finish(self, is_placed):
        self.table.end_finished(lambda _: is_placed, now=self.now)

    @rule()
    def crash(self):
        """The next leader starts from nodes and pods; it may repeat unanswered requests."""
        before, self.table = self.table, Evictions()
        self.there -= self.accepted
        self.accepted, self.asked, self.states = set(), set(), {}
        for hold in self.written.values():
            if hold is not None:
                self.table.pick_up(hold, noticed=lambda uid: uid in self.noticed)
        for hold in self.table.holds.values():
            if hold == before.holds.get(hold.node):
                for target in hold.targets:
                    old, new = before.get(target.uid), self.table.get(target.uid)
                    assert (new.target, new.node, new.is_noticed) == (old.target, old.node, old.is_noticed)
                    is_sendable = old.state in (Progress.HELD, Progress.SENT)
                    want = [Progress.HELD, Progress.NOTICED][old.is_noticed] if is_sendable else old.state
                    assert new.state is want or self.is_going(target.uid)
        for uid in {"a0", "a1", "a2"} - self.there:
            self.table.gone(uid)
        self.noticed &= self.table.listed()

    @invariant()
    def only_legal_steps_are_taken(self):
        for uid in ("a0", "a1", "a2"):
            before, found = self.states.get(uid), self.table.get(uid)
            if found is None:
                assert before is None or not TRANSITIONS[before], "it left the table before its end"
                self.states.pop(uid, None)
                continue
            is_new = before is None or (found.state is Progress.PLANNED and not TRANSITIONS[before])
            assert is_new or before is found.state or reachable(before, found.state)
            self.states[uid] = found.state

    @invariant()
    def holds_and_evictions_agree(self):
        listed = [(t.uid, node) for node, hold in self.table.holds.items() for t in hold.targets]
        assert len({uid for uid, _ in listed}) == len(listed)
        for uid in ("a0", "a1", "a2"):
            found = self.table.get(uid)
            assert (found is not None and found.is_listed) == ((uid, found and found.node) in listed)
        assert set(self.table.awaited()) == self.accepted


def reachable(before, after):
    """Whether events lead there."""
    return after in TRANSITIONS[before] or any(after in TRANSITIONS[step] for step in TRANSITIONS[before])


TestLives = Lives.TestCase
TestLives.settings = examples(100)
