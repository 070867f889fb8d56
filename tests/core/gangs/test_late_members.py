"""Room for pods that are made only once others of their gang run: judged with those, kept, given to them, and ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus, node, pod, policy, resident, team, world
from tests.core.support.waiting import member, waiting
from tests.examples import examples
from webhook.core.admission.admission import admit
from webhook.core.line.gang_plans import GangPlan, ended_reservations
from webhook.core.model.amounts import GangId
from webhook.core.model.constraints import Gang, Tier
from webhook.core.model.decision import Admit, Queue
from webhook.core.model.pod import Requester
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.model.reasons import Code
from webhook.core.starting.starts import AssumedStarts

GANG = GangId("team-a/g")
QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


class Stage:
    """A world, and the releases of its leader; the ledger lists what the world assumes."""

    def __init__(self, *, nodes=2, late=(4, 4), **shares):
        made = [node(f"n{number}") for number in range(nodes)]
        self.world = world(policy(team(**{**QUEUES, **shares}), team("team-b", **QUEUES)), nodes=made)
        self.world.tick(100)
        self.withdrawn = []
        self.starts = AssumedStarts(self.world, listed=self._listed)
        self.starts.due(now=100, count=9)
        self.plan = GangPlan(1, late=tuple(pod(count, namespace="team-a") for count in late))
        self.listed = {}

    def _listed(self, _team, uid):
        return self.listed.get(uid)

    def first_comes(self, count=4):
        """The first pod of the gang waits; return what starts."""
        self.world.set_waiting(member("first", count=count, is_described=True))
        self.starts.due(now=100, count=9)
        self.starts.entries.gangs.learn(GANG, self.plan)
        return self.starts.due(now=101, count=9)

    def charge(self, turns):
        """Charge each turn, as the ledger does, and show the pods without their gates."""
        for turn in turns:
            decision, flight, replaced = self.starts.judge_again(turn)
            if flight is None:
                continue
            if replaced is not None:
                self.withdrawn.append(replaced)
            self.world.assume(flight)
            if turn.is_reservation:
                self.listed[turn.waiting.uid] = flight
            else:
                self.start(turn, decision)

    def start(self, turn, decision):
        uid = turn.waiting.uid
        self.world.drop_reservation(uid)
        tier, (first, *_) = str(decision.charge.tier), decision.node_choice.nodes
        shown = resident(turn.waiting.pod.demand.gpus // gpus(1), uid=uid, node=first, tier=tier, gang=GANG)
        self.world.set_pod(shown)

    def run_first(self):
        self.charge(self.first_comes())

    @property
    def used(self):
        return self.world.usage("team-a").total

    def kept(self):
        return len(list(self.world.gang_reservations.of(GANG)))


def test_the_first_starts_only_where_those_that_follow_have_room_and_it_is_kept_for_them():
    stage = Stage()
    turns = stage.first_comes()
    assert [turn.is_reservation for turn in turns] == [False, True, True]
    assert stage.used == gpus(12)
    stage.charge(turns)
    assert (stage.used, stage.kept()) == (gpus(12), 2)
    assert Stage(nodes=1).first_comes() == [], "10 GPUs are not enough for three pods of 4"
    assert Stage(limit_=11).first_comes() == [], "the limit counts those that follow"


def test_pods_that_follow_get_their_room_at_once_ahead_of_all_others():
    stage = Stage(limit_=12)
    stage.run_first()
    stage.world.set_waiting(waiting("rival", 4, created=1))
    stage.world.set_waiting(member("w0", count=4, created=2))
    (turn,) = stage.starts.due(now=102, count=9)
    assert (turn.waiting.pod.name, stage.used, stage.kept()) == ("w0", gpus(12), 1)
    stage.charge([turn])
    assert stage.withdrawn == [turn.reservation.pod.uid]
    assert (stage.used, stage.kept()) == (gpus(12), 1)
    assert "team team-a holds 12 of 12" in stage.starts.blocked["uid-rival"].reason.text


def test_a_pod_that_follows_waits_at_the_door_for_its_room_and_the_one_after_it_goes_its_own_way():
    stage = Stage(late=(4,))
    stage.run_first()
    new = pod(4, namespace="team-a", gang=Gang(GANG, "g"))
    found = admit(new, Requester(""), stage.world)
    assert isinstance(found, Queue)
    assert found.reason.code is Code.WAITS_FOR_GANG
    assert found.reason.text == "waits: room is reserved for it in gang g; 1st in the queue"
    (reservation,) = stage.world.gang_reservations.of(GANG)
    stage.world.drop_reservation(reservation.pod.uid)
    assert isinstance(admit(new, Requester(""), stage.world), Admit)


def test_room_is_kept_on_where_the_charge_of_its_pod_fails():
    stage = Stage(limit_=12)
    stage.run_first()
    stage.world.set_waiting(member("w0", count=4))
    (turn,) = stage.starts.due(now=102, count=9)
    stage.starts.drop_assumed(turn)
    assert (stage.used, stage.kept()) == (gpus(12), 2)
    (turn,) = stage.starts.due(now=103, count=9)
    stage.world.waiting.discard("uid-w0")
    assert stage.starts.judge_again(turn).flight is None
    assert (stage.used, stage.kept(), stage.withdrawn) == (gpus(12), 2, [])


def test_a_pod_that_is_larger_than_the_room_that_is_kept_waits_for_its_turn():
    stage = Stage(limit_=12)
    stage.run_first()
    stage.world.set_waiting(member("w0", count=5))
    assert stage.starts.due(now=102, count=9) == []
    assert stage.kept() == 2


def ended(stage, *, is_needed=False, is_in_view=True):
    found = ended_reservations(stage.world, is_needed=is_needed, is_in_view=lambda _room: is_in_view)
    return [(len(each.reservations), each.is_late) for each in found]


def test_room_is_kept_for_the_time_of_the_policy_and_as_long_as_a_pod_of_the_gang_is_left():
    stage = Stage()
    stage.run_first()
    assert ended(stage) == []
    stage.world.tick(399)
    assert ended(stage) == []
    stage.world.tick(401)
    assert ended(stage) == [(2, True)]
    stage.world.remove_pod("uid-first")
    assert ended(stage) == [(2, False)]


def test_room_that_is_kept_in_the_ledger_without_a_gang_ends():
    """The leader was killed between the charges of a gang: its first pod is not charged."""
    stage = Stage()
    turns = stage.first_comes()
    stage.charge(turns[1:])
    stage.starts.drop_assumed(turns[0])
    assert ended(stage) == [(2, False)]


def test_in_a_world_that_is_older_than_the_ledger_only_time_ends_room():
    """A new leader sees the room before the pods: neither its gang nor those that need the room are certain."""
    stage = Stage(guaranteed=4)
    turns = stage.first_comes()
    stage.charge(turns[1:])
    stage.starts.drop_assumed(turns[0])
    assert ended(stage, is_in_view=False) == []
    assert ended(stage) == [(2, False)]
    stage.start(turns[0], turns[0].admit)
    assert ended(stage, is_needed=True, is_in_view=False) == []
    assert ended(stage, is_needed=True) == [(2, False)]
    stage.world.tick(401)
    assert ended(stage, is_in_view=False) == [(2, True)]


@pytest.mark.parametrize(("guaranteed", "want"), [(4, [(2, False)]), (20, [])])
def test_borrowed_room_is_given_back_to_pods_inside_their_share(guaranteed, want):
    stage = Stage(guaranteed=guaranteed)
    stage.run_first()
    tiers = {each.charge.tier for each in stage.world.gang_reservations.of(GANG)}
    assert tiers == {Tier.PREEMPTIBLE if guaranteed == 4 else Tier.GUARANTEED}
    stage.world.set_waiting(waiting("owed", 10, namespace="team-b"))
    stage.starts.due(now=102, count=9)
    assert stage.starts.is_room_needed
    assert ended(stage, is_needed=stage.starts.is_room_needed) == want


@examples()
@given(
    late=st.lists(st.integers(1, 6), max_size=5),
    steps=st.lists(st.tuples(st.sampled_from(["follower", "rival", "ends", "fails"]), st.integers(1, 6)), max_size=12),
    limit=st.integers(4, 24),
)
def test_whatever_comes_the_limit_holds_and_room_that_is_kept_only_shrinks(late, steps, limit):
    stage = Stage(nodes=3, late=late, limit_=limit, guaranteed=limit // 2)
    stage.run_first()
    kept = stage.kept()
    assert kept in (0, len(late)), "all of it or none"
    for number, (step, count) in enumerate(steps):
        had_started = stage.world.gangs.has_started(GANG)  # before, a small follower may let it start after all
        if step == "ends" and stage.world.pod("uid-first"):
            stage.world.tick(stage.world.now + count)
        elif step in ("follower", "fails"):
            stage.world.set_waiting(member(f"f{number}", count=count, created=number))
        elif step == "rival":
            stage.world.set_waiting(waiting(f"r{number}", count, created=number))
        turns = stage.starts.due(now=200 + number, count=9)
        if step == "fails":
            for turn in turns:
                stage.starts.drop_assumed(turn)
                stage.starts.entries.put_back(turn.waiting.uid)
        else:
            stage.charge(turns)
        assert stage.used <= gpus(limit)
        assert all(stage.world.fleet.free(f"n{each}", "nvidia.com/gpu") >= 0 for each in range(3))
        assert stage.kept() <= kept or not had_started
        kept = stage.kept()
