"""Gangs that ask for one domain: placed in the smallest that holds them, or they wait as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import gpus, resident
from tests.core.support.racks import A_RACK, ONE_RACK, ONE_ZONE, gang, racks, racks_of
from tests.core.support.waiting import member
from tests.examples import examples
from webhook.core.line.entries import Attempt, Fits, Never, NoRoom, Way, entry_of
from webhook.core.line.gang_domains import small_text, why_chosen
from webhook.core.line.judged_gang import EntryJudge, judge_gang
from webhook.core.line.judged_pod import judge_pod
from webhook.core.line.line import queued_pod
from webhook.core.model.constraints import ANYWHERE, DomainRequest
from webhook.core.model.decision import Admit
from webhook.core.model.policy import Mode
from webhook.core.placement.domains import DomainRoom, DomainRooms
from webhook.core.starting.starts import AssumedStarts


def judged(place, pods, *, way=Way.IN_TURN, kept=frozenset(), before=frozenset()):
    for each in pods:
        place.set_waiting(each)
    entry = entry_of(queued_pod(each, place)._replace(gang=each.pod.gang.id) for each in pods)
    return judge_gang(entry, place, Attempt(way, frozenset(kept), frozenset(before)))


def choices(found):
    assert {each.verdict for each in found} == {Fits()}, found[0].reason.text
    return [each.decision.node_choice for each in found]


def racks_listed(place, found):
    """The racks of all nodes that any member may use."""
    return racks_of(place, [name for choice in choices(found) for name in choice.nodes])


# -- which domain


def test_the_rack_that_leaves_the_least_is_taken_and_no_list_leaves_it():
    place = racks(a=[8] * 6, b=[8] * 4, c=[8] * 3)
    found = judged(place, gang(4))
    assert racks_listed(place, found) == {"b"}
    domain = choices(found)[0].domain
    assert (domain.name, domain.is_required) == ("rack=b", True)
    assert domain.why == (
        "has room for 4 of these pods, 4 start together; of 2 domains that have, it leaves the least; too small: c 3"
    )


def test_small_pods_of_a_gang_are_listed_with_four_nodes_of_one_rack():
    """The distant fallbacks of a list are elsewhere in the cluster by design: here they must not be."""
    place = racks(a=[8] * 8, b=[8] * 5, c=[8] * 8)
    found = judged(place, gang(3, 1))
    assert racks_listed(place, found) == {"b"}
    assert {len(choice.nodes) for choice in choices(found)} == {4}


def test_a_required_gang_waits_as_one_while_free_gpus_are_scattered():
    place = racks(a=[8, 8, 0, 0], b=[8, 8, 0, 0], c=[8, 0, 0, 0])
    found = judged(place, gang(3))
    assert {type(each.verdict) for each in found} == {NoRoom}
    assert {each.reason.text for each in found} == {
        "gang g starts whole, with 3 pods in one rack; the best of 3 has room for 2 of them now"
    }
    assert place.usage("team-a").total == 0


def test_a_gang_that_no_rack_could_ever_hold_says_which_is_the_largest():
    place = racks(a=[8, 8], b=[8, 8, 0])
    found = judged(place, gang(4))
    assert {type(each.verdict) for each in found} == {Never}
    assert found[0].reason.text == (
        "gang g requires one rack for 4 pods, and the largest, rack=b, holds 3 of them when empty: it can never "
        "start whole; make it smaller, or ask for a larger domain"
    )


def test_a_preferred_rack_that_is_too_small_gives_way_to_any_nodes():
    place = racks(a=[8, 8], b=[8, 8])
    found = judged(place, gang(3, domain=A_RACK))
    assert racks_listed(place, found) == {"a", "b"}
    domain = choices(found)[0].domain
    assert (domain.name, domain.why) == ("", "no rack has: a 2, b 2")
    assert racks_listed(place, judged(place, gang(2, name="h", domain=A_RACK))) == {"a"}


def test_a_preference_goes_on_to_the_next_larger_level_of_policy():
    place = racks(levels=("zone", "rack"), r0a=[8] * 2, r0b=[8] * 2, r1a=[8] * 2)
    found = judged(place, gang(3, domain=A_RACK))
    assert {choice.domain.name for choice in choices(found)} == {"zone=0"}
    assert "no rack has: r0a 2, r0b 2, r1a 2" in choices(found)[0].domain.why


def test_a_gang_that_requires_a_zone_gets_one_rack_of_it_where_that_has_room():
    place = racks(levels=("zone", "rack"), r0a=[8] * 2, r0b=[8] * 3, r1a=[8] * 5)
    assert racks_listed(place, judged(place, gang(3, domain=ONE_ZONE))) == {"r0b"}
    assert racks_listed(place, judged(place, gang(5, name="h", domain=ONE_ZONE))) == {"r1a"}
    found = judged(place, gang(6, name="i", domain=ONE_ZONE))
    assert (
        "gang i requires one zone for 6 pods, and the largest, zone=0, holds 5 of them when empty"
        in found[0].reason.text
    )


@pytest.mark.parametrize(("domain", "want"), [(None, ["rack=b"]), (ANYWHERE, [None])])
def test_levels_of_policy_hold_for_every_gang_that_does_not_decline(domain, want):
    place = racks(levels=("rack",), a=[8, 8, 4, 4], b=[8, 8, 8])
    found = judged(place, gang(3, domain=domain))
    assert [choice.domain and choice.domain.name for choice in choices(found)] == want * 3


def test_nodes_kept_for_others_do_not_count():
    place = racks(a=[8, 8], b=[8, 8, 8])
    assert racks_listed(place, judged(place, gang(2), kept={"n00"})) == {"b"}


def test_members_of_two_sizes_are_placed_together():
    place = racks(a=[8, 8], b=[8, 8, 4])
    pods = [member("head", "g", 4, domain=ONE_RACK), *gang(2)]
    assert racks_listed(place, judged(place, pods)) == {"b"}


def test_the_key_of_a_label_that_no_node_has_is_said():
    place = racks(a=[8, 8])
    found = judged(place, gang(2, domain=DomainRequest("row", is_required=True)))
    assert found[0].reason.text.endswith("for 2 pods, and no node that it may use has this label; correct the key")


# -- room that reclaim makes


def test_room_is_taken_back_in_the_rack_where_the_least_is_missing():
    place = racks(held_as="preemptible", a=[8, 0, 0], b=[8, 4, 4], c=[0, 0, 0])
    found = judged(place, gang(3))
    assert {choice.domain.name for choice in choices(found)} == {"rack=b"}
    assert choices(found)[0].domain.why == "8 GPUs come back there for 3 pods that start together"
    bound = [choice for choice in choices(found) if choice.mode is Mode.PREFER]
    assert bound
    assert all(("rack", "In", ("b",)) in choice.pool_terms[0] for choice in bound), "kube-scheduler cannot leave it"


def test_free_room_counts_before_room_that_is_taken_back():
    place = racks(held_as="preemptible", a=[8, 8, 0], b=[8, 8, 8, 8])
    assert racks_listed(place, judged(place, gang(3))) == {"b"}
    assert racks_listed(place, judged(place, gang(4, name="h", domain=A_RACK))) == {"b"}


def test_a_gang_that_borrows_takes_nothing_back_and_keeps_the_nodes_of_one_rack():
    place = racks(held_as="preemptible", guaranteed=0, a=[8, 0, 0], b=[8, 4, 4], c=[0, 0])
    found = judged(place, gang(3))
    assert {each.verdict for each in found} == {NoRoom(frozenset({"n03", "n04", "n05"}))}
    found = judged(place, gang(3), before={"n00", "n01", "n02"})
    assert {each.verdict for each in found} == {NoRoom(frozenset({"n00", "n01", "n02"}))}, (
        "room accumulates in one rack"
    )


def test_what_is_charged_at_last_is_in_the_rack_that_was_chosen():
    place = racks(a=[8, 8], b=[8, 8, 8])
    for each in gang(2):
        place.set_waiting(each)
    starts = AssumedStarts(place)
    turns = starts.due(now=100, count=10)
    assert [turn.place.name for turn in turns] == ["rack=a", "rack=a"]
    again = [starts.judge_again(turn).decision for turn in turns]
    assert all(isinstance(each, Admit) for each in again)
    assert racks_of(place, [name for each in again for name in each.node_choice.nodes]) == {"a"}


def test_a_member_that_comes_late_starts_in_the_domain_of_the_others():
    place = racks(a=[8, 8], b=[8, 8, 8])
    first, late = gang(2, 4)
    place.set_pod(resident(4, node="n03", gang=first.pod.gang.id))
    place.set_waiting(late)
    for is_member in (False, True):
        found = judge_pod(late, place, None, is_member=is_member)
        assert racks_listed(place, [found]) == {"b"}
        assert found.place.name == "rack=b"


@pytest.mark.parametrize(("domain", "want"), [(ONE_RACK, 2), (None, 0)])
def test_a_gang_that_asks_for_a_domain_counts_as_the_search_costs(domain, want):
    place = racks(a=[0] * 100)
    pods = gang(2, domain=domain)
    for each in pods:
        place.set_waiting(each)
    entry = entry_of(queued_pod(each, place)._replace(gang=each.pod.gang.id) for each in pods)
    assert EntryJudge(place, now=1).search_cost(entry) == want


# -- texts


def test_only_the_largest_of_the_small_domains_are_named():
    small = tuple(DomainRoom(f"rack=r{number}", (), 9 - number, is_enough=False) for number in range(5))
    assert small_text(DomainRooms((), small, 5, 0)) == "r0 9, r1 8, r2 7 and 2 more"
    assert small_text(DomainRooms()) == "no node has this label"
    long = DomainRoom("rack=" + "x" * 500, (), 1, is_enough=False)
    assert len(small_text(DomainRooms((), (long,), 1, 0))) < 100
    chosen = DomainRoom("rack=a", (), 4, is_enough=True)
    assert why_chosen(chosen, DomainRooms((chosen,), (), 1, 1), 4) == "has room for 4 of these pods, 4 start together"


# -- properties


@examples()
@given(
    sizes=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=4),
    count=st.integers(1, 5),
    size=st.integers(1, 8),
    is_required=st.booleans(),
)
def test_a_gang_is_in_one_rack_whenever_one_has_room(sizes, count, size, is_required):
    """For equal pods: brute force over the racks says when one holds them, and which leaves the least."""
    place = racks(guaranteed=0, **{f"r{index}x": free for index, free in enumerate(sizes)})
    found = judged(place, gang(count, size, domain=ONE_RACK if is_required else A_RACK))
    holding = {f"r{index}x" for index, free in enumerate(sizes) if sum(each // size for each in free) >= count}
    fits = isinstance(found[0].verdict, Fits)
    if is_required:
        assert fits == bool(holding)
    if fits and holding:
        listed = racks_listed(place, found)
        assert len(listed) == 1
        assert listed <= holding
    if not fits:
        assert place.usage("team-a").total == 0
        assert all(each.reason for each in found)
    assert place.usage("team-a").total in (0, gpus(count * size))


@examples()
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from("01"), st.lists(st.sampled_from([0, 8]), min_size=1, max_size=4)),
        min_size=1,
        max_size=5,
    ),
    count=st.integers(1, 6),
)
def test_the_smallest_level_is_taken_and_of_its_domains_the_one_that_leaves_the_fewest_nodes(sizes, count):
    """Nodes are free or full here, so that what is left is a number of nodes."""
    racked = {f"r{zone}{'abcde'[index]}": free for index, (zone, free) in enumerate(sizes)}
    place = racks(levels=("zone", "rack"), **racked)
    found = judged(place, gang(count, domain=A_RACK))
    by_rack = {rack: free.count(8) for rack, free in racked.items()}
    by_zone = {zone: sum(free for rack, free in by_rack.items() if rack[1] == zone) for zone in "01"}
    for key, domains in (("rack", by_rack), ("zone", by_zone)):
        left = {name: free - count for name, free in domains.items() if free >= count}
        if left:
            want = min(left, key=lambda name: (left[name], name))
            assert {choice.domain.name for choice in choices(found)} == {f"{key}={want}"}
            return
    if sum(by_rack.values()) >= count:
        assert {choice.domain.name for choice in choices(found)} == {""}
    else:
        holds = sum(len(free) for free in racked.values())
        assert {type(each.verdict) for each in found} == {NoRoom if holds >= count else Never}
