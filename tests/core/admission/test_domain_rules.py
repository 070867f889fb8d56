"""What is said of domains when a pod is created, and where later members of a gang go."""

from dataclasses import replace

import pytest

from tests.core.support import claims
from tests.core.support.make import ALICE, node, pool, resident
from tests.core.support.racks import A_RACK, ONE_RACK, ONE_ZONE, TEAM_A, gang, racks
from webhook.core.admission.admission import admit
from webhook.core.admission.domain_rules import (
    domain_refusal,
    gang_warnings,
    kinds_of,
    place_beside,
    place_of_node,
    request_of,
)
from webhook.core.admission.node_choice import in_domain
from webhook.core.model.constraints import ANYWHERE, DomainPlace, DomainRequest, Operator, Requirement
from webhook.core.model.decision import Admit, Deny, NodeChoice, Queue
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code

NO_KEY = DomainRequest("row", is_required=True)
ROW_A = Requirement("row", Operator.IN, ("a",))


def pods(count, **more):
    return [each.pod for each in gang(count, **more)]


def refusal(place, members):
    return domain_refusal(members, request_of(members[0].gang, place), TEAM_A, place)


def started(place, *nodes, domain=ONE_RACK):
    """A gang with a pod on each of these nodes, and one more pod of it."""
    first = gang(1, domain=domain)[0].pod
    for name in nodes:
        place.set_pod(resident(1, uid=f"m-{name}", node=name, gang=first.gang.id))
    return gang(2, 1, domain=domain)[1].pod


def test_the_largest_domain_is_named_where_none_could_hold_the_gang():
    place = racks(a=[0, 0], b=[8, 8, 8])
    assert refusal(place, pods(3)) is None
    found = refusal(place, pods(4))
    assert found.code is Code.NEVER_FITS
    assert "requires one rack for 4 pods, and the largest, rack=b, holds 3 of them when empty" in found.text
    assert refusal(place, pods(4, domain=A_RACK)) is None
    assert refusal(place, pods(4, domain=None)) is None


def test_nothing_is_refused_of_pods_that_share_the_devices_of_a_claim():
    place = racks(a=[8])
    four = pods(4)
    assert refusal(place, four) is not None
    assert refusal(place, [each._replace(claims=(claims.SHARING,)) for each in four]) is None
    assert refusal(place, [each._replace(claims=(claims.MAKING,)) for each in four]) is not None


def test_a_key_that_no_node_has_is_refused_with_the_first_pod():
    place = racks(a=[8])
    decision = admit(pods(1, domain=NO_KEY)[0], ALICE, place)
    assert isinstance(decision, Deny)
    assert "no node that it may use has this label; correct the key" in decision.reasons[0].text
    assert isinstance(admit(pods(1)[0], ALICE, place), Queue)


def test_nothing_is_refused_that_an_autoscaler_or_a_lost_node_may_change():
    place = racks(a=[8])
    place.set_policy(replace(place.policy, pools=(pool("p", is_autoscaled=True),)))
    assert refusal(place, pods(4)) is None
    assert refusal(racks(), pods(4)) is None, "no node is known"
    place = racks(a=[8])
    place.is_live = True
    for number in range(3):
        place.set_node(node(f"x{number}", gpus=8, labels={"rack": "x"}))
        place.remove_node(f"x{number}")
    assert refusal(place, pods(4)) is None
    assert refusal(place, pods(1, domain=NO_KEY)) is not None, "no node that left had the label either"
    for seconds in (1, 2, 4000):
        place.tick(seconds)
    assert refusal(place, pods(4)) is not None


def test_closed_and_full_nodes_count():
    place = racks(a=[0, 0])
    place.set_node(replace(place.fleet.get("n00"), is_ready=False))
    assert refusal(place, pods(2)) is None


def test_a_gang_of_a_declared_size_is_refused_with_the_pod_that_no_domain_holds():
    place = racks(a=[8, 8], b=[8])
    members = gang(3)
    for each in members[:2]:
        assert isinstance(admit(each.pod, ALICE, place), Queue)
        place.set_waiting(each)
    decision = admit(members[2].pod, ALICE, place)
    assert isinstance(decision, Deny)
    assert "requires one rack for 3 pods, and the largest, rack=a, holds 2" in decision.reasons[0].text


@pytest.mark.parametrize(
    ("request_", "want"), [(DomainRequest("row"), 1), (A_RACK, 0), (ANYWHERE, 0), (None, 0), (ONE_RACK, 0)]
)
def test_a_preference_for_a_label_that_no_node_has_is_a_warning(request_, want):
    place = racks(a=[8])
    found = gang_warnings(pods(1)[0], request_, place)
    assert [each.code for each in found] == [Code.TOPOLOGY_IGNORED] * want
    assert gang_warnings(pods(1)[0], request_, racks()) == (), "no node is known"


def test_what_cannot_be_read_is_a_warning_also_for_a_pod_that_waits():
    place = racks(a=[8])
    decision = admit(pods(1, domain=None)[0]._replace(domain_problem="it is ignored"), ALICE, place)
    assert [each.text for each in decision.warnings] == ["it is ignored"]
    both = pods(1, domain=None)[0]._replace(domain_problem="it is ignored", gang_problem="no number")
    decision = admit(both, ALICE, place)
    assert [each.code for each in decision.warnings] == [Code.GANG_IGNORED, Code.TOPOLOGY_IGNORED]
    alone = pods(1, domain=None)[0]._replace(domain_problem="it is ignored", gang=None)
    decision = admit(alone, ALICE, place)
    assert isinstance(decision, Admit)
    assert [each.text for each in decision.warnings] == ["it is ignored"]


def test_equal_pods_are_one_kind():
    place = racks(a=[8])
    kinds = kinds_of([*pods(3), *pods(2, size=4, name="h")], TEAM_A, place)
    assert [(kind.number, dict(kind.demand.requests)["nvidia.com/gpu"]) for kind in kinds] == [(3, 8), (2, 4)]


# -- later members


def test_a_later_member_goes_to_the_domain_of_the_others():
    place = racks(a=[8, 8], b=[8, 8, 8])
    later = started(place, "n03")
    assert place_beside(later, place).name == "rack=b"
    decision = admit(later, ALICE, place)
    assert isinstance(decision, Admit)
    assert {place.fleet.get(name).labels["rack"] for name in decision.node_choice.nodes} == {"b"}
    assert decision.node_choice.domain.why == "with the other pods of its gang"


def test_a_later_member_stays_in_the_smallest_level_with_room_and_never_leaves_what_is_required():
    place = racks(levels=("zone", "rack"), r0a=[0, 0], r0b=[8], r1a=[8])
    assert place_beside(started(place, "n00", domain=ONE_ZONE), place).name == "zone=0"
    full = racks(a=[0, 0], b=[8])
    assert place_beside(started(full, "n00"), full).name == "rack=a"
    assert place_beside(started(full, "n00", domain=A_RACK), full) is None, "a preference gives way"
    assert place_beside(started(full, "n00", domain=ANYWHERE), full) is None
    assert place_beside(gang(1)[0].pod, full).name == "rack=a"
    assert place_beside(gang(1, name="other")[0].pod, full) is None


def test_a_later_member_without_room_is_bound_to_the_domain_all_the_same():
    place = racks(a=[0], b=[8])
    place.set_policy(replace(place.policy, teams=tuple(replace(each, on_no_room=None) for each in place.policy.teams)))
    decision = admit(started(place, "n00"), ALICE, place)
    assert isinstance(decision, Admit)
    assert decision.node_choice.nodes == ()
    assert decision.node_choice.pool_terms == ((Requirement("rack", Operator.IN, ("a",)),),)


def test_a_charged_member_names_the_required_domain_of_its_node():
    place = racks(a=[8])
    there = place.fleet.get("n00")
    found = gang(1)[0].pod.gang
    assert place_of_node(found, there, place).name == "rack=a"
    assert place_of_node(found, None, place) is None
    assert place_of_node(found._replace(domain=A_RACK), there, place) is None
    assert place_of_node(found._replace(domain=NO_KEY), there, place) is None


def test_a_request_of_a_pod_group_counts():
    place = racks(a=[8], b=[8])
    members = pods(2, domain=None)
    place.group_domains[members[0].gang.id] = ONE_RACK
    assert refusal(place, members) is not None


# -- what is written


@pytest.mark.parametrize(
    ("choice", "want"),
    [
        (NodeChoice(Mode.AUTO, ("n0",)), ()),
        (NodeChoice(Mode.REQUIRE, ("n0",)), ()),
        (NodeChoice(Mode.PREFER, ("n0",)), ((ROW_A,),)),
        (NodeChoice(Mode.AUTO), ((ROW_A,),)),
        (NodeChoice(Mode.AUTO, pool_terms=((NO_POOL := Requirement("p", Operator.EXISTS),),)), ((NO_POOL, ROW_A),)),
        (NodeChoice(Mode.OFF), ((ROW_A,),)),
    ],
)
def test_a_required_domain_binds_the_pod_where_no_list_of_nodes_does(choice, want):
    place = DomainPlace("row=a", (ROW_A,), is_required=True)
    assert in_domain(choice, place).pool_terms == want
    assert in_domain(choice, place._replace(is_required=False)).pool_terms == choice.pool_terms
    assert in_domain(choice, place).domain == place
