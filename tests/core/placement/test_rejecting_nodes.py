"""A node that rejects pods is closed to their team for minutes, then tried by one pod at a time; never to others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import ALICE, commit, node, pod, policy, resident, world
from tests.core.support.outcomes import admitted
from tests.core.support.rejecting import NOW, REASON, first_node, place_of, reject, rejection, started
from tests.examples import examples
from tests.kept import kept
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import Namespace, NodeName, TeamName, Uid
from webhook.core.placement.rejecting_nodes import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    MOST_NODES,
    REMEMBERED_SECONDS,
    STRIKES,
    TRY_SECONDS,
    RejectingNodes,
)


def test_pods_that_ran_before_their_node_rebooted_do_not_close_it():
    place = place_of()
    for number in range(STRIKES):
        place.rejecting_nodes.note(started(at=NOW + number))
    place.tick(NOW + 60)
    for number in range(STRIKES):  # admitted again before its device plugin is there: with the time of the first start
        place.rejecting_nodes.note(rejection(at=NOW + number, uid=f"ran-{number}"))
    assert first_node(place) == "n0"
    reject(place, at=NOW + 60)
    assert first_node(place) == "n1", "new pods count"


def test_pods_of_one_team_that_run_do_not_hide_that_those_of_others_are_rejected():
    place = place_of()
    place.rejecting_nodes.note(started(at=NOW + 5, namespace="team-b"))
    place.tick(NOW + 5)
    reject(place)
    assert first_node(place) == "n1"


def test_a_clock_of_the_node_that_is_ahead_hides_no_rejection():
    place = place_of()
    place.rejecting_nodes.note(started(at=NOW + 86_400))
    reject(place, at=NOW + 86_460)
    assert first_node(place) == "n1"


def test_the_latest_start_of_a_team_is_known_until_its_node_goes():
    place = place_of()
    nodes = place.rejecting_nodes

    def is_known(at, namespace="team-a"):
        return nodes.has_started_since(NodeName("n0"), Namespace(namespace), started(at=at).written)

    assert not is_known(NOW)
    nodes.note(started(at=NOW))
    assert [is_known(NOW - 1), is_known(NOW), is_known(NOW + 1)] == [True, True, False]
    assert not is_known(NOW, "team-b")
    place.remove_node(NodeName("n0"))
    nodes.note(started(at=NOW))  # its pods are updated once more
    assert not is_known(NOW)


def names(place, namespace: str = "team-a"):
    return admitted(admit(pod(1, namespace=namespace), ALICE, place)).node_choice.nodes


class TestClosing:
    def test_one_rejection_puts_a_node_last(self):
        place = place_of()
        assert first_node(place) == "n0"
        reject(place, 1)
        assert first_node(place) == "n1"
        place.set_pod(resident(8, node="n1", namespace="team-b"))
        assert first_node(place) == "n0"

    def test_some_in_a_row_close_it_also_as_a_fallback(self):
        place = place_of(3)
        reject(place)
        assert set(names(place)) == {"n1", "n2"}

    def test_a_pod_that_started_in_between_keeps_it_open(self):
        place = place_of()
        for number in range(2 * STRIKES):
            place.rejecting_nodes.note(rejection(at=NOW - 50 + 2 * number))
            place.rejecting_nodes.note(started(at=NOW - 49 + 2 * number))
        assert list(place.rejecting_nodes.closed()) == []
        assert first_node(place) == "n0"

    def test_the_same_pod_counts_once(self):
        place = place_of()
        for _ in range(STRIKES):
            place.rejecting_nodes.note(rejection(uid="one"))
        assert list(place.rejecting_nodes.closed()) == []

    def test_what_others_know_of_it(self):
        place = place_of()
        reject(place)
        [closed] = place.rejecting_nodes.closed()
        assert (closed.node, closed.team, closed.rejections, closed.reason) == ("n0", "team-a", STRIKES, REASON)
        assert (closed.since, closed.until) == (NOW, NOW + FIRST_SECONDS)

    def test_a_clock_of_the_node_that_is_ahead_closes_it_no_longer(self):
        place = place_of()
        reject(place, at=NOW + 86_400)
        [closed] = place.rejecting_nodes.closed()
        assert closed.until == NOW + FIRST_SECONDS

    def test_pods_that_ran_for_long_before_they_were_rejected_say_nothing(self):
        place = place_of()  # kubelet keeps the start of pods that it rejects after its own restart
        reject(place, at=NOW - REMEMBERED_SECONDS)
        assert first_node(place) == "n0"


class TestOtherTeams:
    def test_they_take_it_last_and_are_never_kept_off(self):
        place = place_of()
        reject(place, 100)
        assert first_node(place, "team-b") == "n1"
        place.set_pod(resident(8, node="n1", namespace="team-b"))
        assert first_node(place, "team-b") == "n0"

    def test_a_pod_of_any_team_that_starts_there_ends_that(self):
        place = place_of()
        reject(place)
        place.rejecting_nodes.note(started(at=NOW + 1, namespace="team-b"))
        assert first_node(place, "team-b") == "n0"
        assert first_node(place, "team-a") == "n1"

    def test_a_race_of_one_team_changes_nothing_for_others(self):
        place = place_of()
        reject(place, STRIKES - 1)
        assert first_node(place, "team-b") == "n0"

    def test_namespaces_without_a_team_are_one_team(self):
        place = place_of()
        reject(place, 2, namespace="stray-1")
        place.tick(NOW + 1)
        reject(place, 1, at=NOW + 1, namespace="stray-2")
        assert [each.node for each in place.rejecting_nodes.closed()] == ["n0"]


class TestTryingAgain:
    def closed(self):
        place = place_of()
        reject(place)
        place.set_pod(resident(8, node="n1", namespace="team-b"))
        return place

    def test_it_is_closed_for_minutes(self):
        place = self.closed()
        place.tick(NOW + FIRST_SECONDS - 1)
        assert first_node(place) is None
        place.tick(NOW + FIRST_SECONDS)
        assert first_node(place) == "n0"

    def test_one_pod_at_a_time_tries_it(self):
        place = self.closed()
        place.tick(NOW + FIRST_SECONDS)
        first = pod(1, uid=Uid("first"))
        charge = admitted(admit(first, ALICE, place)).charge
        commit(place, first, charge, NodeName("n0"))
        assert first_node(place) is None
        place.tick(NOW + FIRST_SECONDS + TRY_SECONDS)
        assert first_node(place) == "n0"

    def test_a_pod_with_a_tentative_reservation_is_the_one(self):
        place = self.closed()
        place.tick(NOW + FIRST_SECONDS)
        place.tentative.reserve(place.fleet, NodeName("n0"), pod(1), now=0.0)
        assert first_node(place) is None
        place.tentative.expire(place.fleet, now=1e9)  # it was never created
        assert first_node(place) == "n0"
        place.tentative.reserve(place.fleet, NodeName("n0"), pod(1), now=0.0)
        place.set_pod(resident(1, node="n0"))  # it was
        assert first_node(place) is None

    def test_a_charge_that_is_taken_back_lets_another_pod_try(self):
        place = self.closed()
        place.tick(NOW + FIRST_SECONDS)
        place.rejecting_nodes.try_out(NodeName("n0"), Namespace("team-a"), Uid("one"), pod(1).demand)
        place.rejecting_nodes.give_up(NodeName("n0"), Namespace("team-a"), Uid("other"))
        assert first_node(place) is None
        place.rejecting_nodes.give_up(NodeName("n0"), Namespace("team-a"), Uid("one"))
        assert first_node(place) == "n0"

    def test_each_failed_try_doubles_the_time(self):
        place, now, want = self.closed(), NOW, FIRST_SECONDS
        for _ in range(8):
            now += want
            place.tick(now - 1)
            assert first_node(place) is None
            place.tick(now)
            assert first_node(place) == "n0"
            place.rejecting_nodes.note(rejection(at=now))
            want = min(2 * want, LONGEST_SECONDS)

    def test_a_pod_that_starts_opens_it_at_once(self):
        place = self.closed()
        place.rejecting_nodes.note(started(at=NOW + 30))
        assert first_node(place) == "n0"
        assert list(place.rejecting_nodes.closed()) == []
        place.rejecting_nodes.note(rejection(at=NOW + 40))  # counted from the beginning
        assert first_node(place) == "n0"

    def test_a_pod_that_started_before_opens_nothing(self):
        place = self.closed()
        place.rejecting_nodes.note(started(at=NOW))
        assert first_node(place) is None

    def test_it_is_forgotten_after_an_hour(self):
        place = place_of()
        reject(place)
        place.tick(NOW + FIRST_SECONDS + REMEMBERED_SECONDS - 1)
        assert first_node(place) == "n1"
        place.tick(NOW + FIRST_SECONDS + REMEMBERED_SECONDS + 60)
        assert first_node(place) == "n0"
        assert not place.rejecting_nodes.records


class TestRestart:
    def test_what_a_list_has_in_any_order_counts_in_the_order_of_time(self):
        live, restarted = place_of(), world(policy(), nodes=[node("n0", gpus=8), node("n1", gpus=8)])
        outcomes = [
            *(rejection(at=NOW + each) for each in range(STRIKES)),
            started(at=NOW + 60),
            *(rejection(at=NOW + 120 + each) for each in range(STRIKES)),
            rejection(at=NOW + 120 + FIRST_SECONDS + STRIKES),
        ]
        live.tick(NOW + 1000)
        for each in outcomes:
            live.rejecting_nodes.note(each)
        for each in reversed(outcomes):
            restarted.rejecting_nodes.note(each)
        restarted.tick(NOW + 1000)
        [want] = live.rejecting_nodes.closed()
        assert list(restarted.rejecting_nodes.closed()) == [want]
        assert want.until == NOW + 120 + FIRST_SECONDS + STRIKES + 2 * FIRST_SECONDS

    def test_a_node_that_is_tried_once_an_hour_stays_closed(self):
        live, restarted, now = place_of(), world(policy(), nodes=[node("n0", gpus=8), node("n1", gpus=8)]), NOW
        reject(live)
        seen = [rejection(at=NOW, uid=f"{NOW}-{number}") for number in range(STRIKES)]
        for seconds in (300, 600, 1200, 2400, 3600, 3600, 3600):
            now += seconds
            live.tick(now)
            seen.append(rejection(at=now))
            live.rejecting_nodes.note(seen[-1])
        for each in seen:
            restarted.rejecting_nodes.note(each)
        restarted.tick(now + 60)
        [want] = live.rejecting_nodes.closed()
        assert want.until == now + LONGEST_SECONDS
        assert list(restarted.rejecting_nodes.closed()) == [want]

    def test_old_rejections_of_a_list_that_is_read_again_are_forgotten_at_once(self):
        place = place_of()
        reject(place, at=NOW - 3 * REMEMBERED_SECONDS)
        assert not place.rejecting_nodes.records

    def test_a_relist_counts_nothing_again(self):
        place = place_of()
        reject(place, at=NOW - 300)
        place.rejecting_nodes.note(started(at=NOW - 200))
        reject(place, at=NOW - 300)
        assert first_node(place) == "n0"


class TestReplacedNodes:
    @pytest.mark.parametrize("is_seen", [True, False], ids=["deletion seen", "deletion missed"])
    def test_a_new_node_of_the_same_name_is_trusted(self, is_seen):
        place = place_of()
        reject(place)
        if is_seen:
            place.remove_node(NodeName("n0"))
        place.set_node(node("n0", gpus=8, created=NOW + 60))
        assert first_node(place) == "n0"
        place.rejecting_nodes.note(rejection(at=NOW + 1))  # of the node before
        assert not place.rejecting_nodes.records

    def test_failed_pods_that_are_deleted_after_their_node_bring_nothing_back(self):
        place = place_of()
        reject(place)
        place.remove_node(NodeName("n0"))
        reject(place)
        assert not place.rejecting_nodes.records

    def test_an_update_of_the_same_node_changes_nothing(self):
        place = place_of()
        reject(place)
        place.set_node(node("n0", gpus=8, created=NOW - 60, labels={"new": "label"}))
        assert first_node(place) == "n1"


class TestSlots:
    def test_nodes_that_are_sorted_again_stay_closed(self):
        place = world(policy(), nodes=[node("n1", gpus=8), node("n0", gpus=8)])
        place.tick(NOW)
        reject(place, on="n1")
        assert first_node(place) == "n0"
        place.sort_nodes()
        reject(place, on="n0")
        assert first_node(place) is None


@examples(60)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["reject", "start", "tick"]), st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 900)
        ),
        max_size=60,
    )
)
def test_a_tenant_alone_closes_no_node_for_others(events):
    """Whatever pods of one team do, another team finds room as long as a node has any."""
    place = place_of(3)
    place.set_pod(resident(8, node="n1", namespace="team-b"))
    place.set_pod(resident(8, node="n2", namespace="team-b"))
    now = NOW
    for number, (kind, on, seconds) in enumerate(events):
        if kind == "tick":
            now += seconds
            place.tick(now)
        elif kind == "start":
            place.rejecting_nodes.note(started(on, at=now))
        else:
            place.rejecting_nodes.note(rejection(on, at=now, uid=f"u{number}"))
    assert first_node(place, "team-b") == "n0"
    assert place.rejecting_nodes.avoided(TeamName("team-b"), pod(1), place.fleet).closed == 0
    assert {each.team for each in place.rejecting_nodes.closed()} <= {"team-a"}


def test_a_list_of_any_length_is_bounded():
    fresh = RejectingNodes()
    fresh.set_node(node("n0"), before=None)
    for number in range(100_000):
        fresh.note(rejection(at=NOW - 100_000 + number))
    assert kept(fresh) < 2000
    fresh.tick(NOW)
    assert next(iter(fresh.closed())).reason == REASON


def test_a_team_has_so_many_nodes_in_memory():
    nodes = RejectingNodes()
    nodes.tick(NOW)
    for number in range(2 * MOST_NODES):
        nodes.set_node(node(f"n{number}"), before=None)
        for strike in range(STRIKES):
            nodes.note(rejection(f"n{number}", at=NOW - 2 * MOST_NODES + number, uid=f"{number}-{strike}"))
    assert len(nodes.records[TeamName("team-a")]) == MOST_NODES
    assert f"n{2 * MOST_NODES - 1}" in nodes.records[TeamName("team-a")]


class TestShapes:
    """Kubelets reject some pods for their size: one that asks for less is not kept off by that."""

    @staticmethod
    def reject_sizes(place, *sizes, on="n0"):
        for number, size in enumerate(sizes):
            shape = (("nvidia.com/gpu", size),)
            place.rejecting_nodes.note(rejection(on, at=NOW, uid=f"u{number}")._replace(shape=shape))

    @pytest.mark.parametrize(("count", "want"), [(1, "n0"), (5, "n0"), (6, "n1"), (8, "n1")])
    def test_pods_that_ask_for_less_than_those_that_were_rejected_use_the_node(self, count, want):
        place = place_of()
        self.reject_sizes(place, *[6] * STRIKES)
        assert first_node(place, count=count) == want

    def test_a_rejection_of_a_smaller_pod_counts_for_larger_ones(self):
        place = place_of()
        self.reject_sizes(place, 6, *[1] * (STRIKES - 1))
        (closed,) = place.rejecting_nodes.closed()
        assert (closed.shape, closed.rejections) == ((("nvidia.com/gpu", 6),), STRIKES)

    @pytest.mark.parametrize(("size", "want"), [(1, "n1"), (6, "n0")])
    def test_only_the_start_of_a_pod_as_large_opens_the_node(self, size, want):
        place = place_of()
        self.reject_sizes(place, *[6] * STRIKES)
        place.rejecting_nodes.note(started(at=NOW + 1)._replace(requests=(("nvidia.com/gpu", size),)))
        place.tick(NOW + 1)
        assert first_node(place, count=6) == want

    def test_no_number_of_shapes_fills_the_memory(self):
        place = place_of()
        self.reject_sizes(place, *range(1, 1000))
        assert (
            sum(len(by_shape) for records in place.rejecting_nodes.records.values() for by_shape in records.values())
            < 10
        )
