"""Ledgers shared by the teams of a department: no limit of any level is passed, whatever fails or moves."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.core.support.departments import department
from tests.core.support.make import gpus, policy, team
from tests.core.support.shared_ledgers import (
    APART,
    DEPARTMENT_LIMIT,
    POLICIES,
    TEAM_LIMIT,
    TEAMS,
    Etcd,
    Replica,
    Write,
)
from tests.examples import examples
from webhook.core.model.amounts import DepartmentName
from webhook.core.quota.charges import LedgerRecord
from webhook.core.quota.usage import Moves, department_ledger
from webhook.core.world.ledger_homes import OUT_SECONDS, LedgerHomes

A, B = TEAMS
LEFT, RIGHT = (department_ledger(DepartmentName(name)) for name in ("left", "right"))
LEDGERS = (A, B, LEFT, RIGHT)
WHO, WHICH, TEAM = st.integers(0, 1), st.sampled_from(LEDGERS), st.sampled_from(TEAMS)


class SharedLedgers(RuleBasedStateMachine):
    """Two replicas, two teams of one department from the start; every step is one message or one failure."""

    homes_type: type[LedgerHomes] = LedgerHomes

    def __init__(self):
        super().__init__()
        self.etcd = Etcd()
        self.replicas = [Replica(self.etcd, homes_type=self.homes_type) for _ in range(2)]
        self.lost: list[Write] = []
        self.now = 0.0
        self.next_uid = 0

    @rule(who=WHO, name=TEAM, count=st.integers(1, 3), is_answered=st.booleans())
    def requests_come(self, who, name, count, is_answered):
        uids = [f"{name}/{self.next_uid + number}" for number in range(count)]
        self.next_uid += count
        self.replicas[who].ask(name, uids)
        if is_answered:
            self.replicas[who].finish_all()

    @rule(who=WHO, is_late=st.booleans(), is_answered=st.booleans())
    def the_leader_tidies_up(self, who, is_late, is_answered):
        self.now += OUT_SECONDS * is_late
        self.replicas[who].tidy(self.now)
        if is_answered:
            self.replicas[who].finish_all()

    @rule(who=WHO, ledger=WHICH)
    def it_folds(self, who, ledger):
        self.replicas[who].fold(ledger)

    @rule(who=WHO, ledger=WHICH, is_heard=st.booleans())
    def a_write_is_answered(self, who, ledger, is_heard):
        self.replicas[who].finish(ledger, is_heard=is_heard)

    @rule(who=WHO, ledger=WHICH, is_held_up=st.booleans())
    def the_answer_is_lost(self, who, ledger, is_held_up):
        if ledger in self.replicas[who].writes:
            write = self.replicas[who].hear_nothing(ledger)
            if is_held_up:
                self.lost.append(write)
            else:
                self.etcd.swap(write.ledger, write.base, write.record)

    @precondition(lambda self: self.lost)
    @rule()
    def a_write_that_was_held_up_arrives(self):
        write = self.lost.pop(0)
        self.etcd.swap(write.ledger, write.base, write.record)

    @precondition(lambda self: self.etcd.promised)
    @rule(comes=st.booleans())
    def a_creation_ends(self, comes):
        uid = min(self.etcd.promised)
        self.etcd.promised.remove(uid)
        if comes:
            self.etcd.create(uid)

    @precondition(lambda self: self.etcd.pods)
    @rule(newest=st.booleans())
    def a_pod_ends(self, newest):
        self.etcd.delete((max if newest else min)(self.etcd.pods))

    @rule(who=WHO)
    def a_pod_event_arrives(self, who):
        self.replicas[who].next_event()

    @rule(who=WHO)
    def an_object_event_arrives(self, who):
        self.replicas[who].next_object()

    @rule(who=WHO)
    def it_catches_up(self, who):
        self.replicas[who].all_events()
        self.replicas[who].all_objects()

    @rule(who=WHO, ledger=WHICH)
    def it_reads_an_object(self, who, ledger):
        if ledger not in self.replicas[who].writes and ledger in self.etcd.objects:
            self.replicas[who].read(ledger)

    @rule(who=WHO)
    def it_is_killed_and_starts_again(self, who):
        self.lost += self.replicas[who].writes.values()
        self.replicas[who] = Replica(self.etcd, self.replicas[who].world.policy, self.homes_type)

    @invariant()
    def no_team_is_over_its_limit(self):
        assert all(held <= TEAM_LIMIT for held in self.etcd.held.values())

    @invariant()
    def no_ledger_is_open_beside_another(self):
        objects = {ledger: record.moves for ledger, (_, record) in self.etcd.objects.items()}
        for name in TEAMS:
            is_own = not objects.get(name, Moves()).is_away
            shared = [ledger for ledger in (LEFT, RIGHT) if objects.get(ledger, Moves()).is_open_for(name)]
            assert is_own + len(shared) <= 1

    def teardown(self):
        """Drain all messages: no charge may be left in flight, and every usage equals the pods."""
        while self.lost:
            self.a_write_that_was_held_up_arrives()
        for uid in sorted(self.etcd.promised):
            self.etcd.create(uid)
        self.etcd.promised.clear()
        for _ in range(4):
            for replica in self.replicas:
                rest(replica)
        for replica in self.replicas:
            assert {name: replica.world.usage(name).total for name in TEAMS} == {
                name: gpus(self.etcd.held[name]) for name in TEAMS
            }
        assert not any(record.flights for _, record in self.etcd.objects.values())


def rest(replica):
    for ledger in [*replica.writes]:
        replica.finish(ledger, is_heard=False)
    replica.all_events()
    replica.all_objects()
    for session in replica.sessions:
        for flight in session.unseen():
            session.note(flight.pod.uid, replica.evidence(flight.pod.uid))
    for ledger in [*replica.etcd.objects]:
        replica.fold(ledger)
    replica.finish_all()
    for session in replica.sessions:
        session.drop_released(replica.reached)


class OneDepartment(SharedLedgers):
    """Every replica knows the department: its limit is never passed, either."""

    @invariant()
    def no_department_is_over_its_limit(self):
        assert sum(self.etcd.held.values()) <= DEPARTMENT_LIMIT


class EditedPolicy(SharedLedgers):
    """Edits of policy reach the replicas at different times: teams move, and no team is ever over its limit."""

    @rule(who=WHO, which=st.sampled_from(POLICIES))
    def an_edit_arrives(self, who, which):
        self.replicas[who].world.set_policy(which)


TestOneDepartment = OneDepartment.TestCase
TestOneDepartment.settings = examples(40, stateful_step_count=50)
TestEditedPolicy = EditedPolicy.TestCase
TestEditedPolicy.settings = examples(40, stateful_step_count=60)


def settled(replica):
    """Have a replica make all of its moves."""
    for name in TEAMS:
        replica.homes.session(name)
    for _ in range(6):
        for ledger in replica.homes.tidy(0.0):
            replica.send(ledger)
        replica.finish_all()


def asked(replica, name, *numbers):
    """Request pods of a team until they are judged: the moves before that are made, too."""
    for _ in range(4):
        replica.all_objects()
        replica.ask(name, [f"{name}/{number}" for number in numbers])
        replica.finish_all()


def test_all_teams_of_a_limited_department_join_its_ledger_before_the_first_charge():
    etcd = Etcd()
    one = Replica(etcd)
    asked(one, A, 0)
    objects = {ledger: record for ledger, (_, record) in etcd.objects.items()}
    assert (objects[A].moves.home, objects[B].moves.home) == ("left", "left")
    assert objects[LEFT].moves.members == {A: 1, B: 1}
    assert list(objects[LEFT].flights) == ["team-a/0"]
    assert not objects[A].flights


def test_two_replicas_that_charge_two_teams_at_once_conflict():
    etcd = Etcd()
    one, other = Replica(etcd), Replica(etcd)
    settled(one)
    other.all_objects()
    one.ask(A, ["team-a/0", "team-a/1"])
    other.ask(B, ["team-b/0", "team-b/1"])
    one.finish_all()
    other.finish_all()
    assert sum(etcd.held.values()) == 2
    other.ask(B, ["team-b/0", "team-b/1"])
    other.finish_all()
    assert etcd.held == {A: 2, B: 1}


def test_a_replica_with_an_older_policy_follows_the_team_to_its_department():
    etcd = Etcd()
    new, old = Replica(etcd), Replica(etcd, APART)
    settled(new)
    old.all_objects()
    assert old.homes.ledger_of(A) == LEFT
    asked(old, A, 0)
    assert list(etcd.objects[LEFT][1].flights) == ["team-a/0"]


def test_the_department_above_that_has_a_limit_has_the_ledger():
    bottom, middle = department("bottom", "middle"), department("middle", "top", limit_=3)
    above = policy(team("team-a", departments=(bottom, middle, department("top"))), departments=(bottom, middle))
    assert Replica(Etcd(), above).homes.ledger_of(A) == department_ledger(DepartmentName("middle"))


def test_departments_without_a_limit_share_nothing():
    free = department("free", guaranteed=3)
    homes = Replica(Etcd(), policy(team("team-a", departments=(free,)), departments=(free,))).homes
    assert homes.ledger_of(A) == A
    assert homes.is_ready(A)
    assert list(homes.wanted()) == []


def test_only_after_a_while_does_a_leader_give_a_team_its_own_ledger_back():
    etcd = Etcd()
    one = Replica(etcd)
    asked(one, A, 0)
    one.world.set_policy(APART)
    for now, want in ((0.0, LEFT), (OUT_SECONDS - 1, LEFT), (OUT_SECONDS, A)):
        for _ in range(4):
            one.tidy(now)
            one.finish_all()
        assert one.homes.ledger_of(A) == want
    # the charge stays in the department's ledger until its pod is seen; then nothing refers to that any more
    assert etcd.objects[A][1].moves.left == {"left": 2}
    assert one.homes.is_needed(LEFT)
    etcd.promised.remove("team-a/0")
    etcd.create("team-a/0")
    one.all_events()
    one.fold(LEFT)
    one.finish_all()
    folded = etcd.objects[LEFT][1].folded
    for _ in range(2):
        one.tidy(OUT_SECONDS)
        one.finish_all()
    assert (etcd.objects[A][1].moves.left, etcd.objects[A][1].folded) == ({}, folded)
    assert not one.homes.is_needed(LEFT)


def test_the_leader_moves_a_team_between_departments_at_once():
    etcd = Etcd()
    one = Replica(etcd)
    settled(one)
    one.world.set_policy(POLICIES[3])
    settled(one)
    assert [one.homes.ledger_of(name) for name in TEAMS] == [LEFT, RIGHT]
    assert etcd.objects[LEFT][1].moves.members == {A: 1, B: 2}
    assert etcd.objects[RIGHT][1].moves.members == {B: 3}


def test_a_record_that_is_deleted_by_hand_opens_no_ledger_again():
    etcd = Etcd()
    one = Replica(etcd)
    asked(one, A, 0)
    del etcd.objects[A]
    fresh = Replica(etcd)
    assert not fresh.homes.is_ready(LEFT)
    asked(fresh, A, 1)
    assert etcd.objects[A][1].moves.home == "left"
    assert etcd.held == {A: 2}
    one.homes.session(A).lose()
    one.send(A)
    one.finish_all()
    assert etcd.objects[A][1].moves.epoch == 1


def test_the_object_of_a_department_that_is_gone_for_good_keeps_no_team_waiting():
    etcd = Etcd()
    etcd.swap(A, 0, LedgerRecord({}, 0, 1, Moves(2, left={DepartmentName("left"): 2})))
    one = Replica(etcd, APART)
    assert not one.homes.is_ready(A)
    for now in (0.0, 9.0):
        one.tidy(now)
        one.finish_all()
    assert not one.homes.is_ready(A)
    one.tidy(10.0)
    one.finish_all()
    assert one.homes.is_ready(A)


# -- each rule is needed


class AlwaysReady(LedgerHomes):
    """Broken: charges without having all teams of the department in one ledger."""

    def is_ready(self, ledger):
        return ledger in TEAMS

    def takes(self, ledger, team):
        return ledger == team

    def ledger_of(self, team):
        return team


class ForgetsWhatItLeft(LedgerHomes):
    """Broken: charges a team that moved without the view of the department that it left."""

    def is_ready(self, ledger):
        return self._moves(ledger).is_away is False if ledger in TEAMS else super().is_ready(ledger)


def two_teams_at_once(one, other):
    one.ask(A, ["team-a/0", "team-a/1"])
    other.ask(B, ["team-b/0", "team-b/1"])
    one.finish_all()
    other.finish_all()


def one_moves_out_and_the_other_lags(one, other):
    """The other charges two pods in the department; the one, which did not see that, opens the team's own ledger."""
    asked(one, A, 8)
    other.all_objects()
    other.ask(A, ["team-a/0"])
    other.finish_all()
    for each in (one, other):
        each.world.set_policy(APART)
    other.all_objects()
    for _ in range(4):
        other.tidy(0.0)
        other.tidy(OUT_SECONDS)
        other.finish_all()
    one.read(A)
    one.ask(A, ["team-a/1", "team-a/2"])
    one.finish_all()


@pytest.mark.parametrize("script", [two_teams_at_once, one_moves_out_and_the_other_lags])
def test_the_rules_hold_every_limit(script):
    etcd = Etcd()
    script(Replica(etcd), Replica(etcd))
    assert max(etcd.held.values(), default=0) <= TEAM_LIMIT
    assert sum(etcd.held.values()) <= DEPARTMENT_LIMIT


@pytest.mark.parametrize(
    ("broken", "script"),
    [(AlwaysReady, two_teams_at_once), (ForgetsWhatItLeft, one_moves_out_and_the_other_lags)],
)
def test_without_one_of_the_rules_a_limit_is_passed(broken, script):
    etcd = Etcd()
    script(Replica(etcd, homes_type=broken), Replica(etcd, homes_type=broken))
    assert max(etcd.held.values()) > TEAM_LIMIT or sum(etcd.held.values()) > DEPARTMENT_LIMIT
