"""Pods that run without a decision get one when policy is enforced: by age, in the room left by labeled pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import claims, make
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Handling
from webhook.core.model.policy import NO_TEAM
from webhook.core.quota.charges import InFlightCharge
from webhook.core.tiers.shadow_labels import adoptions

TEAM = make.team(guaranteed=4, limit_=None)
POLICY = make.policy(TEAM, make.team("team-b"), exempt_namespaces=("kept",))


def bare(count=1, **more):
    return make.resident(count, tier=None, **more)


def adopted(*pods, team=TEAM):
    return {each.pod.uid: each.charge.tier for each in adoptions(team, make.world(POLICY, residents=list(pods)))}


def test_the_oldest_that_fit_are_guaranteed():
    young, old, small = bare(3, uid="young", created=9), bare(3, uid="old", created=1), bare(1, uid="small", created=10)
    assert adopted(young, old, small) == {"old": "guaranteed", "young": "preemptible", "small": "guaranteed"}


def test_a_pod_that_the_ledger_still_lists_comes_after_older_ones_and_is_labeled_later():
    """Policy was not enforced when it came: Fairgate counted it as guaranteed, and the older ones as borrowers."""
    old = [bare(2, uid=f"u{number}", created=number, node="n0") for number in range(2)]
    late = bare(2, uid="late", created=99, node="n0")
    world = make.world(POLICY, residents=old)
    world.assume(InFlightCharge(late._replace(node=None), Charge(TEAM.name, Tier.GUARANTEED, make.gpus(2)), None))
    world.set_pod(late)
    assert {each.pod.uid: each.charge.tier for each in adoptions(TEAM, world)} == dict.fromkeys(
        ["u0", "u1"], "guaranteed"
    )
    world.drop_reservation("late")
    assert [each.charge.tier for each in adoptions(TEAM, world) if each.pod.uid == "late"] == ["preemptible"]


def test_labeled_pods_are_not_displaced():
    assert adopted(make.resident(3, created=5), bare(2, uid="old", created=1)) == {"old": "preemptible"}


def test_pods_that_requested_preemptible_borrow():
    assert adopted(bare(1, uid="p")._replace(tier_label="preemptible")) == {"p": "preemptible"}


def test_pods_that_fairgate_does_not_label_take_room_and_stay_unchanged():
    static = bare(3, uid="static")._replace(handling=Handling.MIRROR, node="n0")
    assert adopted(static, bare(1, uid="in"), bare(1, uid="out", created=9)) == {
        "in": "guaranteed",
        "out": "preemptible",
    }
    assert adopted(bare(1, namespace="kept")) == {}


@pytest.mark.parametrize("handling", [Handling.DAEMON_SET, Handling.FOREIGN_SCHEDULER, Handling.NODE_NAME])
def test_externally_placed_pods_are_guaranteed_or_borrow_like_others(handling):
    placed = [bare(3, uid=f"p{n}", created=n)._replace(handling=handling, node="n0") for n in range(2)]
    assert adopted(*placed) == {"p0": "guaranteed", "p1": "preemptible"}


def test_a_pod_with_a_grace_period_of_a_year_borrows():
    dying = bare(5, uid="dying")._replace(is_terminating=True, node="n0")
    assert adopted(dying) == {"dying": "preemptible"}


def test_pods_awaiting_external_placement_take_room_until_they_are_on_a_node():
    waits = bare(3, uid="waits")._replace(handling=Handling.FOREIGN_SCHEDULER)
    assert adopted(waits, bare(3, uid="in", created=9)) == {"in": "preemptible"}


def test_pods_of_no_team_are_guaranteed_nothing():
    world = make.world(POLICY, residents=[bare(1, uid="p", namespace="elsewhere")])
    assert [(pod.uid, charge.tier) for pod, charge in adoptions(NO_TEAM, world)] == [("p", "preemptible")]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.booleans()), max_size=12))
def test_guaranteed_usage_never_grows_and_a_second_pass_finds_nothing(kinds):
    pods = [
        make.resident(size, uid=f"u{number}", created=age, tier="guaranteed" if is_labelled else None)
        for number, (size, age, is_labelled) in enumerate(kinds)
    ]
    world = make.world(POLICY, residents=pods)
    before = world.usage("team-a").guaranteed
    for pod, charge in adoptions(TEAM, world):
        world.set_pod(pod._replace(team_label=charge.team, tier_label=charge.tier.value))
    book = world.usage("team-a")
    assert book.guaranteed <= before
    labelled = sum(make.gpus(size) for size, _, is_labelled in kinds if is_labelled)
    assert book.guaranteed <= max(TEAM.gpus.guaranteed, labelled)
    assert adoptions(TEAM, world) == ()


@pytest.mark.parametrize("tier", ["guaranteed", "preemptible"])
def test_pods_that_share_a_claim_get_the_tier_of_the_pod_that_is_charged(tier):
    """They count 0: without a label they could not be evicted, and would keep borrowed devices."""
    place = claims.with_devices(8)
    place.set_claim(claims.SHARED, claims.spec(2))
    place.set_pod(claims.resident("a", claims.SHARING, tier=tier, node="n0"))
    bare = {"tier": None, "node": "n0", "handling": Handling.NODE_NAME}
    place.set_pod(claims.resident("shares", claims.SHARING, **bare))
    place.set_pod(make.resident(0, uid="plain", **bare))
    place.set_pod(claims.resident("theirs", claims.SHARING, namespace="team-b", **bare))
    (adoption,) = adoptions(place.policy.team("team-a"), place)
    assert (adoption.pod.uid, adoption.charge.gpus, adoption.charge.tier) == ("shares", 0, tier)
