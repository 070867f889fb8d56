"""Plans for several pods and gangs, and for the largest pod."""

from hypothesis import given
from hypothesis import strategies as st

from tests.addons.moves.made import clusters, fleet, movable, target
from tests.core.support.make import GPU, node
from tests.core.support.scenes import NOW
from webhook.addons.moves.candidates import NoMoves
from webhook.addons.moves.targets import MAX_GROUPS, Movement, grow, imagined, make_room
from webhook.core.model.amounts import NodeName, TeamName
from webhook.core.model.constraints import DomainRequest
from webhook.core.model.policy import BUILT_IN_RESOURCES

RACK = "rack"
IN_ONE_RACK = DomainRequest(RACK, is_required=True)


def movement(pods, *, sizes=(4, 4), fleet_=None, **more):
    made = fleet_ or fleet(sizes)
    for each in pods:
        made.take(each.node, each.victim.demand, holder=each.uid)
    return Movement(fleet=made, movable=pods, now=NOW, left={}, weights=BUILT_IN_RESOURCES, per_workload=9, **more)


def racks(*names, size=4):
    made = fleet(())
    for number, name in enumerate(names):
        made.set(node(f"n{number}", gpus=size, labels={RACK: name}))
    return made


def names(found):
    return [[(move.pod.victim.name, move.to) for move in room.moves] for room in found.rooms]


def refused(found):
    return [([each.name for each in group.targets], group.cause) for group in found.refused]


def test_each_plan_counts_on_the_earlier_ones_the_longest_waiting_first():
    pods = [movable(f"a{n}", 1, on=f"n{n}", saved=n) for n in range(3)]
    found = make_room(
        [target(4, name="late", since=9), target(4, name="early", since=1)], movement(pods, sizes=[4] * 3)
    )
    assert [room.places[0].target.name for room in found.rooms] == ["early", "late"]
    assert names(found) == [[("a2", "n0")], [("a1", "n0")]]


def test_a_pod_that_moved_is_not_moved_again():
    pods = [movable("a", 1, on="n0"), movable("b", 1, on="n1")]
    found = make_room([target(4, name="x", since=1), target(4, name="y", since=2)], movement(pods))
    assert (len(found.rooms), refused(found)) == (1, [(["y"], NoMoves.TOO_FEW_FREE)])


def test_a_gang_gets_room_for_all_of_its_pods_or_none():
    pods = [movable(f"a{n}", 1, on=f"n{n}", saved=n) for n in range(3)]
    gang = [target(4, name=f"g{n}", gang="g", since=1) for n in range(3)]
    found = make_room([*gang[:2], target(4, name="x", since=2)], movement(pods, sizes=[4] * 3))
    assert (len(found.rooms[0].places), refused(found)) == (2, [(["x"], NoMoves.TOO_FEW_FREE)])
    found = make_room([*gang, target(4, name="x", since=2)], movement(pods, sizes=[4] * 3))
    assert refused(found) == [(["g0", "g1", "g2"], NoMoves.TOO_FEW_FREE)]
    assert names(found) == [[("a2", "n0")]]


def test_a_gang_that_requires_one_domain_gets_room_where_that_costs_the_least():
    pods = [movable("old", 1, on="n0"), movable("fresh", 1, on="n2", saved=NOW - 1)]
    there = movement(pods, fleet_=racks("a", "a", "b", "b", "c"), levels=(RACK,))
    gang = [target(4, name=f"g{n}", gang="g", domain=IN_ONE_RACK) for n in range(2)]
    found = make_room(gang, there)
    assert [place.node for place in found.rooms[0].places] == ["n3", "n2"]
    assert names(found) == [[("fresh", "n0")]]


def test_a_gang_without_such_a_domain_gets_no_room():
    pods = [movable("a", 3, on="n0", where=0b0011), movable("b", 3, on="n2", where=0b1100)]
    there = movement(pods, fleet_=racks("a", "a", "b", "b"), levels=(RACK,))
    gang = [target(4, name=f"g{n}", gang="g", domain=IN_ONE_RACK) for n in range(2)]
    assert refused(make_room(gang, there)) == [(["g0", "g1"], NoMoves.NO_DOMAIN)]
    wishes = [each._replace(domain=DomainRequest(RACK)) for each in gang]
    assert [place.node for place in make_room(wishes, there).rooms[0].places] == ["n1", "n3"]


def test_the_largest_pod_grows_by_the_cheapest_moves():
    pods = [movable("old", 1, on="n0"), movable("fresh", 1, on="n1", saved=NOW - 1), movable("big", 3, on="n2")]
    found = grow(GPU, movement(pods, sizes=[4] * 3))
    assert names(found) == [[("fresh", "n2")]]
    assert (found.before.largest(GPU), found.after.largest(GPU)) == (3, 4)
    assert (found.before.nodes, found.after.nodes) == ({GPU: {3: 2, 1: 1}}, {GPU: {4: 1, 3: 1}})


def test_a_cluster_whose_largest_pod_cannot_grow_gets_no_plan():
    found = grow(GPU, movement([movable("a", 1)]))
    assert (found.rooms, found.before) == ((), found.after)


def test_more_groups_than_the_bound_are_counted_only():
    found = make_room([target(5, name=f"x{n:03}") for n in range(MAX_GROUPS + 2)], movement([]))
    assert (len(found.refused), found.rest) == (MAX_GROUPS, 2)


def test_a_team_with_many_groups_leaves_a_part_to_others():
    many = [target(5, name=f"x{n:03}", since=1) for n in range(2 * MAX_GROUPS)]
    late = target(5, name="late", since=9)._replace(team=TeamName("team-c"))
    found = make_room([*many, late], movement([]))
    assert (len(found.refused), refused(found)[-1]) == (MAX_GROUPS, (["late"], NoMoves.NO_NODE))


def test_an_imagined_pod_asks_for_devices_alone():
    assert imagined(GPU, 2, movement([])).demand.requests == ((GPU, 2),)


@given(clusters(), st.lists(st.integers(1, 4), max_size=4), st.booleans())
def test_plans_change_nothing(cluster, counts, is_gang):
    def state():
        return [
            (each.name, name, cluster.fleet.free(NodeName(each.name), name))
            for each in cluster.fleet.nodes()
            for name in each.allocatable
        ]

    pods = [pod for name in cluster.nodes() for pod in cluster.on(name)]
    there = Movement(
        fleet=cluster.fleet, movable=pods, now=NOW, left=cluster.left, weights=BUILT_IN_RESOURCES, per_workload=2
    )
    wanted = [target(count, name=f"x{n}", gang="g" if is_gang else "") for n, count in enumerate(counts)]
    before = state()
    found = make_room(wanted, there)
    assert state() == before
    assert make_room(wanted, there) == found
    grow(GPU, there)
    assert state() == before
