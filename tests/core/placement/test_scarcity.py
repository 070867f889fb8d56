"""Nodes that only a few sizes need are reserved for them while others have room."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import GPU, demand, node
from webhook.core.model.amounts import NodeName, Uid
from webhook.core.model.constraints import NO_CONSTRAINTS
from webhook.core.placement.best_nodes import best_nodes
from webhook.core.placement.fleet import Fleet
from webhook.core.placement.fragmentation import DemandMix

HUGE = demand(8, cpu=120_000)
SMALL = demand(1, cpu=12_000)


def fleet_of(*, common=12, rare=4, seen=(SMALL,) * 97 + (HUGE,) * 3) -> Fleet:
    """Nodes of eight GPUs, a few of them with more cores, and earlier arrivals."""
    demand_mix = DemandMix()
    for each in seen * 8:
        demand_mix.note(each)
    fleet = Fleet(demand_mix)
    fleet.track(GPU)
    for number in range(rare):
        fleet.set(node(f"a-rare{number}", gpus=8, cpu=128_000))
    for number in range(common):
        fleet.set(node(f"common{number}", gpus=8, cpu=96_000))
    return fleet


def best(fleet, wanted):
    return best_nodes(fleet, wanted, fleet.matching(NO_CONSTRAINTS), count=99)


def fill(fleet, wanted=SMALL, *, name=None, times=1):
    for _ in range(times):
        fleet.take(name or best(fleet, wanted)[0], wanted)


def test_the_last_nodes_that_hold_a_scarce_size_are_taken_last():
    fleet = fleet_of()
    for number in range(3):
        fill(fleet, name=f"a-rare{number}")
    assert best(fleet, SMALL)[-1] == "a-rare3"
    assert best(fleet, HUGE) == ("a-rare3",)


def test_they_are_used_where_no_other_node_has_room():
    fleet = fleet_of(common=3, rare=1)
    fill(fleet, times=3 * 8)
    assert best(fleet, SMALL) == ("a-rare0",)


def test_reserved_nodes_are_four_times_the_average_pods_plus_one_up_to_three_quarters():
    [group] = fleet_of().gpus.view(GPU).scarcity.groups
    assert group.capable == 4
    large = group._replace(capable=100)
    assert [large.reserved_nodes(pods) for pods in (0, 100, 1000, 100_000)] == [1, 12, 75, 75]
    assert group.reserved_nodes(1000) == 3


def test_no_node_is_reserved_for_a_size_that_never_came():
    assert not fleet_of(seen=(SMALL,)).gpus.view(GPU).scarcity.groups


def test_closed_nodes_do_not_count_as_reserved():
    fleet = fleet_of()
    for number in range(3):
        fleet.set(node(f"a-rare{number}", gpus=8, cpu=128_000, is_cordoned=True))
    assert best(fleet, SMALL)[-1] == "a-rare3"


def test_scarcity_follows_the_nodes():
    fleet = fleet_of(rare=0)
    best(fleet, SMALL)
    for number in range(3):
        fleet.set(node(f"a-rare{number}", gpus=8, cpu=128_000))
        if number < 2:
            fill(fleet, name=f"a-rare{number}")
    assert best(fleet, SMALL)[-1] == "a-rare2"
    for number in range(6):
        fleet.set(node(f"more{number}", gpus=8, cpu=128_000))
    assert best(fleet, SMALL)[-1] != "a-rare2", "nine of 21 nodes are no longer few"


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([SMALL, demand(2, cpu=24_000), HUGE])), max_size=80))
def test_a_pod_that_fits_elsewhere_never_takes_the_last_that_a_scarce_size_needs(steps):
    fleet, held = fleet_of(rare=2, common=6), {}
    for number, wanted in steps:
        uid = Uid(f"u{number}")
        if uid in held:
            name, taken = held.pop(uid)
            fleet.take(name, taken, sign=-1, holder=uid)
            continue
        found = best(fleet, wanted)
        if not found:
            continue
        able = best(fleet, HUGE)
        if len(able) == 1 and wanted != HUGE and len(found) > 1:
            assert found[0] not in able
        held[uid] = (NodeName(found[0]), wanted)
        fleet.take(found[0], wanted, holder=uid)
