"""Devices that several pods share by a claim: all of their users go, or none for these devices."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import claims, make
from tests.core.support.reclaim_pods import NOW
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import GangId, NodeName, TeamName
from webhook.core.model.demand import ClaimRef
from webhook.core.reclaim.limit_victims import cheapest_under
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_plan import NO_OVERRIDES, NoPlan
from webhook.core.reclaim.reclaim_pods import (
    NO_SHARING,
    Going,
    ReclaimPod,
    SchedulerReport,
    Sharing,
    companions,
    freeing,
)
from webhook.core.reclaim.snapshot import take_snapshot
from webhook.core.reclaim.trial import Trial

SHARED, OTHER, OWN = (ClaimRef(claim=name) for name in ("shared", "other", "own"))
CLASS = claims.GPU_CLASS.implicit_resource


class Scene:
    """A node of eight devices; claims of team-a: `shared` of 4, `other` of 2, and `own` of 2."""

    def __init__(self, *pods, **rules):
        policy = make.policy(make.team(guaranteed=0), make.team("team-b"), resources=claims.BUILT_IN, **rules)
        self.world = claims.with_devices(8)
        self.world.set_policy(policy)
        for name in ("n1", "n2", "n3"):
            self.world.remove_node(NodeName(name))
        for name, number in (("shared", 4), ("other", 2), ("own", 2)):
            self.world.set_claim(ClaimKey("claim", "team-a", name), claims.spec(number))
        self.index = ReclaimIndex(self.world.policy.reclaim)
        self.pods = pods
        for each in pods:
            self.world.set_pod(each.pod)
        for each in pods:
            self.index.set(replace(each, pod=self.world.pod(each.uid)))

    def plan_for(self, number):
        """Plan for a guaranteed pod of team-b that claims so many devices."""
        self.world.set_claim(ClaimKey("claim", "team-b", "wanted"), claims.spec(number))
        pod = claims.resident("waiting", ClaimRef(claim="wanted"), namespace="team-b")
        self.world.set_pod(pod)
        waiting = ReclaimPod(self.world.pod("waiting"), report=SchedulerReport(NOW, is_for_room=True))
        return plan([waiting], take_snapshot(self.index, self.world, now=NOW))

    def victims_for(self, number):
        found = self.plan_for(number)
        assert found.refused == (), found.refused
        return sorted(victim.uid for victim in found.moves[0].victims)

    def cause_for(self, number):
        (refused,) = self.plan_for(number).refused
        return refused.cause

    def victim(self, uid):
        return self.index.victim_index.get(uid)


def held(demand):
    """Devices by room and by charge."""
    return dict(demand.requests).get(CLASS, 0), demand.gpus / make.gpus(1)


def user(uid, *refs, tier="preemptible", started=0, **more):
    pod = claims.resident(uid, *refs, node="n0", tier=tier, created=started)
    more.setdefault("goes_with", more.get("gang"))
    return ReclaimPod(pod._replace(is_terminating=more.pop("is_terminating", False)), **more)


# -- plans for nodes


def test_all_users_of_a_device_go_together():
    scene = Scene(user("a", SHARED), user("b", SHARED), user("c", SHARED), user("d", OWN))
    assert scene.victims_for(6) == ["a", "b", "c"]


def test_a_guaranteed_user_keeps_the_devices_and_what_others_hold_beside_them_is_freed():
    scene = Scene(user("a", SHARED, OWN), user("b", SHARED, tier="guaranteed"), user("c", SHARED))
    assert scene.victims_for(4) == ["a"], "its own two, beside two that are free"
    assert scene.cause_for(5) is NoPlan.NOT_ENOUGH_VICTIMS


def test_a_claim_that_cannot_be_freed_does_not_protect_another_one():
    scene = Scene(user("a", SHARED, OTHER), user("b", SHARED), user("g", OTHER, tier="guaranteed"))
    assert scene.victims_for(6) == ["a", "b"]
    assert scene.cause_for(7) is NoPlan.NOT_ENOUGH_VICTIMS


def test_a_user_that_policy_protects_keeps_the_devices():
    rules = replace(make.policy().reclaim, protected_namespaces=("team-a",))
    assert Scene(user("a", SHARED), user("b", SHARED), reclaim=rules).cause_for(6) is NoPlan.NOT_ENOUGH_VICTIMS


def test_a_user_that_waits_for_the_scheduler_uses_nothing_and_protects_nothing():
    late = user("late", SHARED)
    late = replace(late, pod=late.pod._replace(node=None, promised=NodeName("n0")))
    assert Scene(user("a", SHARED), late).victims_for(6) == ["a"]


def test_a_user_that_started_just_now_does_not_protect_the_others():
    rules = replace(make.policy().reclaim, minimum_runtime_seconds=600)
    scene = Scene(user("a", SHARED), user("b", SHARED, started=NOW - 1), reclaim=rules)
    assert scene.victims_for(6) == ["a", "b"]
    young = Scene(user("a", SHARED, started=NOW - 1), user("b", SHARED, started=NOW - 1), reclaim=rules)
    assert young.cause_for(6) is NoPlan.NOT_ENOUGH_VICTIMS


def test_a_gang_takes_the_other_users_of_its_devices_along_and_they_their_gang():
    gang, other = GangId("g"), GangId("h")
    scene = Scene(
        user("a", SHARED, gang=gang), user("m", gang=gang), user("b", SHARED, gang=other), user("n", gang=other)
    )
    assert scene.victims_for(6) == ["a", "b", "m", "n"]
    scene = Scene(user("a", SHARED, gang=gang), user("b", SHARED), user("c", OWN, gang=gang))
    assert scene.victims_for(6) == ["a", "b", "c"]


def test_room_that_a_leaving_user_shares_with_one_that_stays_does_not_come():
    leaving = user("a", SHARED, OWN, is_terminating=True, leaves_at=NOW + 9, leave_seconds=9)
    scene = Scene(leaving, user("g", SHARED, tier="guaranteed"))
    assert scene.victims_for(4) == [], "its own devices come"
    assert scene.cause_for(5) is NoPlan.NOT_ENOUGH_VICTIMS
    alone = Scene(leaving, user("b", SHARED))
    assert alone.victims_for(8) == ["b"], "the last user of what both share"


def test_a_trial_frees_shared_devices_once_and_undoes_it():
    scene = Scene(user("a", SHARED), user("b", SHARED), user("d", OWN))
    trial = Trial(take_snapshot(scene.index, scene.world, now=NOW))
    assert scene.world.fleet.free("n0", CLASS) == 2
    trial.evict([scene.victim("a"), scene.victim("b")])
    assert scene.world.fleet.free("n0", CLASS) == 6
    trial.undo(0)
    assert scene.world.fleet.free("n0", CLASS) == 2


TIERS = st.sampled_from(["preemptible", "guaranteed"])
REFS = st.lists(st.sampled_from([SHARED, OTHER, OWN]), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(REFS, TIERS), min_size=1, max_size=5), st.integers(1, 8))
def test_a_plan_frees_what_is_free_once_its_victims_are_gone_and_finds_one_where_there_is_one(users, number):
    scene = Scene(*(user(f"u{place}", *refs, tier=tier) for place, (refs, tier) in enumerate(users)))
    found = scene.plan_for(number)
    borrowed = {each.uid for each in scene.pods if each.pod.tier_label == "preemptible"}
    gone = {victim.uid for move in found.moves for victim in move.victims}
    assert gone <= borrowed
    for uid in gone:
        scene.world.remove_pod(uid)
    free = scene.world.fleet.free("n0", CLASS)
    if found.refused and found.refused[0].cause is not NoPlan.FITS:
        for uid in borrowed:
            scene.world.remove_pod(uid)
        assert scene.world.fleet.free("n0", CLASS) < number, "there is no plan though all borrowers together are enough"
    else:
        assert free >= number


# -- plans for limits


def test_under_a_limit_a_claim_is_freed_only_with_its_last_user():
    scene = Scene(user("a", SHARED), user("b", SHARED), user("d", OWN))
    trial = Trial(take_snapshot(scene.index, scene.world, now=NOW))
    scale = trial.scale(TeamName("team-b"), NO_OVERRIDES)
    found = cheapest_under(4 * make.gpus(1), scene.index.victim_index, scale=scale)
    assert sorted(victim.uid for victim in found.victims) == ["a", "b"]
    assert sum(victim.demand.gpus for victim in found.victims) == make.gpus(4)
    kept = Scene(user("a", SHARED), user("g", SHARED, tier="guaranteed"), user("d", OWN))
    scale = Trial(take_snapshot(kept.index, kept.world, now=NOW)).scale(TeamName("team-b"), NO_OVERRIDES)
    assert cheapest_under(make.gpus(3), kept.index.victim_index, scale=scale) is None


# -- the rule itself


def test_what_a_pod_frees_depends_on_who_goes_with_it():
    scene = Scene(user("a", SHARED, OWN), user("b", SHARED))
    sharing, demand = Sharing(scene.world), scene.world.pod("a").demand
    assert held(Going(sharing, together=["a"]).freed("a", demand)) == (2, 2)
    assert held(Going(sharing, together=["a", "b"]).freed("a", demand)) == (6, 6)

    def freed(*uids, gone=()):
        return [held(each.demand) for each in freeing(map(scene.victim, uids), sharing, gone=frozenset(gone))]

    assert freed("a") == [(2, 2)]
    assert freed("b") == [(0, 0)]
    assert freed("a", "b") == [(6, 6), (0, 0)]
    assert freed("a", gone=["b"]) == [(6, 6)]
    assert freed("b", gone=["a"]) == [(4, 4)], "a freed what is its own, and the last one frees what they shared"


def test_pods_without_shared_claims_go_alone():
    scene = Scene(user("a", SHARED), user("d", OWN))
    alone = [scene.victim("d")]
    assert companions(alone, scene.index.victim_index, Sharing(scene.world), gone=set(), may_go=bool) == tuple(alone)
    assert companions(alone, scene.index.victim_index, NO_SHARING, gone=set(), may_go=bool) == tuple(alone)


@pytest.mark.parametrize(("node", "want"), [("n0", ["n0"]), (None, [])])
def test_a_waiting_user_is_bound_to_the_node_of_the_others(node, want):
    scene = Scene(user("a", SHARED))
    scene.world.set_pod(claims.resident("a", SHARED, node=node) if node else claims.resident("x", OWN))
    scene.world.set_pod(claims.resident("w", SHARED if node else OWN))
    assert list(Sharing(scene.world).nodes("w")) == want
