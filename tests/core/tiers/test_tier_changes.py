"""Tiers follow usage: what changes, in which order, and that a second pass finds nothing left to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus, node, policy, resident, team, world
from webhook.core.model.amounts import GpuModel, Labels, TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Share
from webhook.core.quota.charges import Alive, Ended, InFlightCharge, Unseen
from webhook.core.tiers.tier_changes import promotion, tier_changes, under_way

A = TeamName("team-a")
A100 = GpuModel("A100")


def made(*residents, guaranteed=20, models=None):
    nodes = [node("n0", gpus=1000), node("a0", gpus=1000, model=A100)]
    shares = policy(team(guaranteed=guaranteed, limit_=None, models=models or {}), team("team-b"))
    return world(shares, nodes, list(residents))


def changes(place):
    (mine, _) = place.policy.teams
    return tier_changes(mine, place)


def changed_tiers(place):
    return [(change.pod.uid, str(change.charge.tier)) for change in changes(place)]


def apply(place):
    """Do what the leader does, as the watch will show it."""
    for change in changes(place):
        place.set_pod(change.pod._replace(tier_label=str(change.charge.tier)))


def borrower(uid, count=1, *, created=0, **more):
    return resident(count, uid=uid, tier="preemptible", created=created, packed=Labels("app\0web"), **more)


def guaranteed_pod(uid, count=1, *, created=0, **more):
    return resident(count, uid=uid, tier="guaranteed", created=created, **more)


def test_the_oldest_borrowers_that_fit_are_promoted():
    place = made(guaranteed_pod("k", 16), borrower("young", 2, created=30), borrower("old", 2, created=10))
    assert changed_tiers(place) == [("old", "guaranteed"), ("young", "guaranteed")]
    assert changed_tiers(
        made(guaranteed_pod("k", 18), borrower("young", 2, created=30), borrower("old", 2, created=10))
    ) == [("old", "guaranteed")]


def test_equal_ages_go_by_name():
    assert changed_tiers(made(guaranteed_pod("k", 19), borrower("b"), borrower("a"))) == [("a", "guaranteed")]


def test_a_pod_that_is_too_large_blocks_no_later_pod():
    place = made(guaranteed_pod("k", 18), borrower("large", 4, created=1), borrower("small", 2, created=2))
    assert changed_tiers(place) == [("small", "guaranteed")]


@pytest.mark.parametrize(
    "more",
    [
        {"requested_tier": Tier.PREEMPTIBLE},
        {"is_terminating": True},
        {"namespace": "team-b"},
    ],
    ids=["borrows by choice", "is terminating", "is another team's"],
)
def test_pods_that_stay_preemptible(more):
    assert changed_tiers(made(borrower("p", **more))) == []


def test_pods_that_are_only_admitted_wait_until_they_are_seen():
    place = made()
    pod = borrower("p", 2)
    place.assume(InFlightCharge(pod, Charge(A, Tier.PREEMPTIBLE, gpus(2)), None))
    assert changed_tiers(place) == []
    place.set_pod(pod)
    assert changed_tiers(place) == [("p", "guaranteed")]


def test_admitted_guaranteed_pods_keep_their_room():
    place = made(borrower("p", 2))
    place.assume(InFlightCharge(guaranteed_pod("k", 19), Charge(A, Tier.GUARANTEED, gpus(19)), None))
    assert changed_tiers(place) == []


def test_a_pod_without_a_team_label_is_not_promoted():
    assert changed_tiers(made(borrower("p")._replace(team_label=None))) == []


def test_the_newest_are_demoted_when_the_share_is_lowered():
    pods = [
        guaranteed_pod("old", 4, created=1),
        guaranteed_pod("middle", 4, created=2),
        guaranteed_pod("new", 4, created=3),
    ]
    assert changed_tiers(made(*pods, guaranteed=20)) == []
    assert changed_tiers(made(*pods, guaranteed=8)) == [("new", "preemptible")]
    assert changed_tiers(made(*pods, guaranteed=7)) == [("middle", "preemptible"), ("new", "preemptible")]
    assert changed_tiers(made(*pods, guaranteed=0)) == [(uid, "preemptible") for uid in ("old", "middle", "new")]


def test_pods_that_never_borrow_are_demoted_last_and_promoted_first():
    asked = guaranteed_pod("asked", 4, created=9, requested_tier=Tier.GUARANTEED)
    assert changed_tiers(made(guaranteed_pod("k", 4, created=1), asked, guaranteed=4)) == [("k", "preemptible")]
    lost = asked._replace(tier_label="preemptible")
    assert changed_tiers(made(borrower("p", 4, created=1), lost, guaranteed=4)) == [("asked", "guaranteed")]


def test_room_freed_by_a_demotion_goes_to_the_next_pod_that_fits():
    pods = [guaranteed_pod("old", 8, created=1), guaranteed_pod("large", 4, created=2), borrower("small", 2, created=3)]
    assert changed_tiers(made(*pods, guaranteed=10)) == [("large", "preemptible"), ("small", "guaranteed")]


def test_pods_that_bypassed_the_webhook_take_room_and_displace_no_pod():
    place = made(resident(15, tier=None), guaranteed_pod("k", 10), borrower("p", 1))
    assert changed_tiers(place) == []


def test_terminating_pods_keep_their_room_until_they_are_gone_and_demote_no_pod():
    leaving = guaranteed_pod("leaving", 10, created=1, is_terminating=True, node="n0")
    assert changed_tiers(made(leaving, guaranteed_pod("k", 10, created=2), borrower("p", 1))) == []
    assert changed_tiers(made(leaving, guaranteed_pod("k", 10, created=2), borrower("p", 1), guaranteed=10)) == []


def test_the_share_of_a_gpu_model_holds_in_both_directions():
    shares = {A100: Share(gpus(4))}
    pods = [guaranteed_pod("k", 3, node="a0"), borrower("on", 2, node="a0"), borrower("off", 2, node="n0")]
    assert changed_tiers(made(*pods, models=shares)) == [("off", "guaranteed")]
    assert changed_tiers(
        made(guaranteed_pod("k1", 3, node="a0"), guaranteed_pod("k2", 3, node="a0", created=1), models=shares)
    ) == [("k2", "preemptible")]


def charged(place):
    """Charge the one promotion that is due, as the ledger does."""
    (change,) = changes(place)
    flight = promotion(change, place).flight
    assert not flight.pod.packed, "it is seen: the ledger need not store its labels"
    place.assume(flight)
    return change, flight


def test_a_promotion_in_progress_is_neither_repeated_nor_forgotten():
    place = made(borrower("p", 2), guaranteed_pod("k", 18))
    change, flight = charged(place)
    assert flight.is_promotion
    assert place.usage(A).guaranteed == gpus(20)
    assert place.evidence(Uid("p"), is_promotion=True) == Unseen()
    assert changed_tiers(place) == []
    assert under_way(Uid("p"), place) == change
    place.set_pod(place.pod(Uid("p"))._replace(node="n0"))  # something else changed
    assert place.evidence(Uid("p"), is_promotion=True) == Unseen()
    place.set_pod(place.pod(Uid("p"))._replace(tier_label="guaranteed", version=7))
    assert place.evidence(Uid("p"), is_promotion=True) == Alive(7)
    assert place.usage(A).guaranteed == gpus(20)
    place.set_pod(place.pod(Uid("p"))._replace(tier_label="preemptible"))  # the share was lowered meanwhile
    assert place.usage(A).guaranteed == gpus(18)


def test_a_promotion_that_failed_is_taken_back():
    place = made(borrower("p", 2))
    _, flight = charged(place)
    place.drop_reservation(Uid("p"))
    assert (place.usage(A).guaranteed, place.usage(A).preemptible) == (0, gpus(2))
    place.assume(flight)
    place.remove_pod(Uid("p"))
    assert place.evidence(Uid("p"), is_promotion=True) == Ended()
    assert under_way(Uid("p"), place) is None


def test_a_replica_that_learns_late_of_a_promotion_knows_what_it_has_seen():
    _, flight = charged(made(borrower("p", 2)))
    place = made(guaranteed_pod("p", 2, version=9))
    place.assume(flight)
    assert place.evidence(Uid("p"), is_promotion=True) == Alive(9)
    empty = made()
    empty.assume(flight)
    assert empty.evidence(Uid("p"), is_promotion=True) == Unseen()
    empty.set_pod(borrower("p", 2))
    assert empty.usage(A).guaranteed == gpus(2)


def test_a_promotion_is_charged_only_while_the_room_is_there():
    place = made(borrower("p", 2))
    (change,) = changes(place)
    assert promotion(change, place).flight is not None
    place.set_pod(guaranteed_pod("faster", 19))
    assert promotion(change, place).flight is None
    place.remove_pod(Uid("faster"))
    assert promotion(change, place).flight is not None
    place.set_pod(change.pod._replace(is_terminating=True))
    assert promotion(change, place).flight is None
    place.remove_pod(Uid("p"))
    assert promotion(change, place).flight is None


def test_the_text_has_the_sums():
    shares = {A100: Share(gpus(4))}
    (up,) = changes(made(guaranteed_pod("k", 17), borrower("p", 2)))
    assert up.message.text == (
        "now guaranteed: there is room for its 2 GPUs in team team-a's guaranteed share of 20, 17 taken; "
        "it no longer borrows"
    )
    (down,) = changes(
        made(guaranteed_pod("k1", 3, node="a0"), guaranteed_pod("k2", 3, node="a0", created=1), models=shares)
    )
    assert down.message.text == (
        "now preemptible: there is no room for its 3 GPUs in team team-a's guaranteed share of 20, 3 taken "
        "(of A100: 4, 3 taken); it borrows, and may be evicted"
    )


any_pod = st.builds(
    lambda number, count, tier, asked, created, at, leaving: resident(
        count, uid=f"u{number}", tier=tier, node=at, created=created
    )._replace(requested_tier=asked, is_terminating=leaving),
    st.integers(0, 30),
    st.integers(1, 6),
    st.sampled_from(["guaranteed", "preemptible", "preemptible", None]),
    st.sampled_from([None, None, Tier.GUARANTEED, Tier.PREEMPTIBLE]),
    st.integers(0, 5),
    st.sampled_from([None, "n0", "a0"]),
    st.sampled_from([False, False, False, True]),
)
any_pods = st.lists(any_pod, max_size=14, unique_by=lambda pod: pod.uid)
any_models = st.sampled_from([{}, {A100: Share(gpus(3))}, {A100: Share(0)}, {A100: Share(gpus(50))}])
any_share = st.integers(0, 30)


def counted(place):
    """GPUs of labelled guaranteed pods that stay, in all and on the one model with a share."""
    held = [(pod, place.charge_of(pod.uid)) for pod in place.pods() if pod.tier is Tier.GUARANTEED]
    stay = [charge for pod, charge in held if not pod.is_terminating]
    return sum(c.gpus for c in stay), sum(c.gpus for c in stay if c.model == A100)


@given(any_pods, any_share, any_models)
def test_afterwards_the_share_holds_and_a_second_pass_finds_nothing(pods, share, models):
    place = made(*pods, guaranteed=share, models=models)
    apply(place)
    total, on_model = counted(place)
    assert total <= gpus(share)
    assert A100 not in models or on_model <= models[A100].guaranteed
    assert changes(place) == ()


@given(any_pods, any_share, any_models)
def test_promotions_never_exceed_the_share(pods, share, models):
    place = made(*pods, guaranteed=share, models=models)
    before = place.usage(A).guaranteed
    rises = [change for change in changes(place) if change.charge.tier is Tier.GUARANTEED]
    apply(place)
    assert not rises or place.usage(A).guaranteed <= gpus(share)
    assert place.usage(A).guaranteed <= max(before, gpus(share))


@given(any_pods, any_share, any_models)
def test_nothing_is_demoted_while_the_shares_hold(pods, share, models):
    place = made(*pods, guaranteed=share, models=models)
    total, on_model = counted(place)
    if total <= gpus(share) and (A100 not in models or on_model <= models[A100].guaranteed):
        assert all(change.charge.tier is Tier.GUARANTEED for change in changes(place))


@given(any_pods, any_share, any_models)
def test_every_borrower_that_fits_is_promoted(pods, share, models):
    place = made(*pods, guaranteed=share, models=models)
    apply(place)
    book = place.usage(A)
    for pod in place.pods():
        if pod.tier is Tier.PREEMPTIBLE and pod.requested_tier is not Tier.PREEMPTIBLE and not pod.is_terminating:
            charge = place.charge_of(pod.uid)
            over_model = charge.model in models and (
                book.guaranteed_model(A100) + charge.gpus > models[A100].guaranteed
            )
            assert over_model or book.guaranteed + charge.gpus > gpus(share)


@given(st.permutations(range(8)), any_share, st.data())
def test_the_order_of_events_changes_nothing(order, share, data):
    pods = data.draw(st.lists(any_pod, min_size=8, max_size=8, unique_by=lambda pod: pod.uid))
    assert changed_tiers(made(*pods, guaranteed=share)) == changed_tiers(
        made(*(pods[i] for i in order), guaranteed=share)
    )


def test_usage_reports_its_changes():
    place, heard = made(), []
    place.on_usage_changed = lambda: heard.append(1)
    place.set_pod(guaranteed_pod("k"))
    assert heard
    heard.clear()
    place.set_pod(guaranteed_pod("k"))
    assert not heard
    place.remove_pod(Uid("k"))
    assert heard
    heard.clear()
    place.set_policy(place.policy)
    assert heard
