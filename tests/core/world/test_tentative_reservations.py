"""Tentative reservations: concurrent pods are sent to other room, and no reservation remains."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, GPU, flight, mutated, node, pod, policy, team, world
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.decision import Admit
from webhook.core.world.reservations import MOST, TENTATIVE_SECONDS

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["give", "redeem", "lapse"]),
        st.sampled_from(["n0", "n1"]),
        st.integers(1, 3),
        st.integers(0, 3),
    )
)


def chosen(decision):
    assert isinstance(decision, Admit), decision
    return decision.node_choice.nodes


def advised(place, pod_, *, now=0.0):
    """Admit a pod and reserve its room, as the webhook does."""
    decision = admit(pod_, ALICE, place)
    chosen(decision)
    place.tentative.reserve(place.fleet, decision.node_choice.nodes[0], pod_, now=now)
    return decision


def committed(place, pod_, decision, *, uid):
    """Verify and assume a pod; gives the node whose room it took."""
    final = mutated(pod_, decision, uid=uid)
    judged = verify(final, ALICE, place)
    (node_,) = chosen(judged)
    place.assume(flight(final, judged.charge, node_))
    return node_


def test_concurrent_pods_get_different_room_and_each_keeps_its_own():
    place = world(policy(team(guaranteed=24)), nodes=[node(f"n{i}", gpus=8) for i in range(3)])
    decisions = [advised(place, pod(8)) for _ in range(3)]
    firsts = [decision.node_choice.nodes[0] for decision in decisions]
    assert firsts == ["n0", "n1", "n2"]
    assert [committed(place, pod(8), d, uid=f"u{i}") for i, d in enumerate(decisions)] == firsts
    assert not place.tentative.clear(place.fleet), "consumed reservations are gone"
    assert [place.fleet.free(name, GPU) for name in firsts] == [0, 0, 0]


def test_concurrent_small_pods_fill_a_node_before_the_next():
    place = world(policy(team(guaranteed=20)), nodes=[node(f"n{i}", gpus=10) for i in range(4)])
    firsts = [advised(place, pod(3)).node_choice.nodes[0] for _ in range(6)]
    assert firsts == ["n0"] * 3 + ["n1"] * 3


def test_a_pod_mutated_twice_keeps_its_node():
    place = world(nodes=[node("n0", gpus=8), node("n1", gpus=8)])
    first = advised(place, pod(8))
    again = admit(mutated(pod(8), first), ALICE, place)
    assert not isinstance(again, Admit), "an intact decision is left as it is"


def test_a_pod_without_a_reservation_finds_the_room_taken():
    place = world(nodes=[node("n0", gpus=8), node("n1", gpus=8)])
    advised(place, pod(8))
    assert chosen(admit(pod(1), ALICE, place)) == ("n1",)


def test_a_reservation_that_is_not_consumed_expires():
    place = world(nodes=[node("n0", gpus=8)])
    advised(place, pod(8), now=10.0)
    place.tentative.expire(place.fleet, now=10.0 + TENTATIVE_SECONDS / 2)
    assert place.fleet.free("n0", GPU) == 0
    place.tentative.expire(place.fleet, now=10.0 + TENTATIVE_SECONDS)
    assert place.fleet.free("n0", GPU) == 8


@given(STEPS)
def test_free_room_is_capacity_less_pods_and_reservations(steps):
    place = world(nodes=[node("n0"), node("n1")])
    open_advice = []
    for now, (what, name, gpus, age) in enumerate(steps):
        if what == "give":
            place.tentative.reserve(place.fleet, name, pod(gpus), now=now)
            open_advice.append((now + TENTATIVE_SECONDS, name, gpus))
        elif what == "redeem":
            place.tentative.consume(place.fleet, name, pod(gpus))
            mine = [piece for piece in open_advice if piece[1:] == (name, gpus)]
            open_advice = [piece for piece in open_advice if piece not in mine[:1]]
        else:
            place.tentative.expire(place.fleet, now=now + age)
            open_advice = [piece for piece in open_advice if piece[0] > now + age]
        for each in ("n0", "n1"):
            taken = sum(piece[2] for piece in open_advice if piece[1] == each)
            assert place.fleet.free(each, GPU) == 10 - taken


def test_pods_that_are_never_created_leave_a_bounded_number_of_reservations():
    """The oldest end first, one with each new one, so no request pays for all of them."""
    place = world(policy(team()), nodes=[node("n0", gpus=3 * MOST)])
    held = []
    for number in range(2 * MOST):
        place.tentative.reserve(place.fleet, "n0", pod(1), now=number / MOST)
        held.append(3 * MOST - place.fleet.free("n0", GPU))
    assert max(held) == held[-1] == MOST
    place.tentative.expire(place.fleet, now=1 + TENTATIVE_SECONDS)
    assert 3 * MOST - place.fleet.free("n0", GPU) == MOST - 1, "the newest are kept"
    assert place.tentative.clear(place.fleet)
    assert place.fleet.free("n0", GPU) == 3 * MOST


def test_the_worlds_own_time_ends_them_and_wakes_who_waits_for_room():
    place = world(nodes=[node("n0", gpus=8)])
    place.tick(100)
    advised(place, pod(8), now=place.now)
    woken = []
    place.on_usage_changed = lambda: woken.append(place.fleet.free("n0", GPU))
    place.tick(100 + TENTATIVE_SECONDS - 1)
    assert (woken, place.fleet.free("n0", GPU)) == ([], 0)
    place.tick(100 + TENTATIVE_SECONDS)
    assert woken == [8]


def test_a_clock_that_is_set_back_prolongs_none():
    place = world(nodes=[node("n0", gpus=8)])
    place.tick(5000)
    advised(place, pod(8), now=place.now)
    place.tick(100)
    assert place.fleet.free("n0", GPU) == 8
