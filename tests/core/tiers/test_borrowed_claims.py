"""Pods that share devices which another pod borrows borrow, too, whenever that pod came to borrow them."""

import pytest

from tests.core.support import make
from tests.core.support.claims import SHARED, SHARING, bare, charged, resident, spec, world
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.tiers.tier_changes import borrowed_claim, tier_changes

TEAM = TeamName("team-a")


def apply(place):
    """Do what the leader does, as the watch will show it, until nothing changes; return what was done."""
    done = []
    while changes := tier_changes(place.policy.team(TEAM), place):
        for change in changes:
            done.append((change.pod.uid, str(change.charge.tier)))
            place.set_pod(change.pod._replace(tier_label=str(change.charge.tier)))
    return done


def sharing(*, first, second="guaranteed", guaranteed=20, own=None):
    """Two pods on one claim of two GPUs, the first of which is charged."""
    place = world(teams=(make.team(guaranteed=guaranteed),))
    place.set_claim(SHARED, spec(2))
    place.set_pod(resident("first", SHARING, tier=first, created=1))
    demand = bare() if own is None else make.demand(own)
    place.set_pod(make.resident(uid="second", claims=(SHARING,), tier=second, created=2, demand=demand))
    return place


def tiers(place):
    return [place.pod(Uid(uid)).tier for uid in ("first", "second")]


@pytest.mark.parametrize(("tier", "want"), [("preemptible", SHARED), ("guaranteed", None)])
def test_a_claim_is_borrowed_if_another_pod_borrows_it(tier, want):
    place = world()
    place.set_claim(SHARED, spec(2))
    joining = make.pod(uid="b", demand=bare(), claims=(SHARING,))
    assert borrowed_claim(joining, place) is None, "it is charged itself"
    place.set_pod(resident("a", SHARING, tier=tier))
    assert borrowed_claim(joining, place) == want
    assert borrowed_claim(joining._replace(uid="a"), place) is None


def test_with_the_pod_that_is_charged_those_that_share_its_claim_are_demoted():
    place = sharing(first="guaranteed", guaranteed=0)
    assert apply(place) == [("first", "preemptible"), ("second", "preemptible")]
    assert charged(place) == 2


def test_a_pod_that_joined_while_the_charged_one_was_demoted_is_demoted_once_it_is_seen():
    place = sharing(first="preemptible", guaranteed=0)
    (change,) = tier_changes(place.policy.team(TEAM), place)
    assert (change.pod.uid, change.charge.tier, change.charge.gpus) == ("second", Tier.PREEMPTIBLE, 0)
    assert change.message.text == (
        "now preemptible: it shares ResourceClaim shared, whose GPUs are borrowed; it may be evicted"
    )
    apply(place)
    assert tiers(place) == [Tier.PREEMPTIBLE] * 2


def test_gpus_of_its_own_make_no_exception():
    place = sharing(first="preemptible", own=1, guaranteed=1)
    assert apply(place) == [("second", "preemptible")]
    assert (place.usage(TEAM).guaranteed, charged(place)) == (0, 3)


def test_a_pod_with_gpus_of_its_own_rises_with_the_pod_whose_claim_it_shares():
    assert apply(sharing(first="preemptible", second="preemptible", own=1)) == [
        ("first", "guaranteed"),
        ("second", "guaranteed"),
    ]
    assert apply(sharing(first="preemptible", second="preemptible", own=1, guaranteed=1)) == []


def test_where_no_claim_is_borrowed_nothing_changes():
    assert apply(sharing(first="guaranteed", own=1)) == []
