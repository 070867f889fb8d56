"""Room that is kept for pods of gangs, as the world knows it from the ledger."""

from tests.core.support.make import gpus, node, pod, policy, resident, team, world
from webhook.core.model.amounts import GangId
from webhook.core.model.constraints import Gang, Tier
from webhook.core.model.decision import Charge
from webhook.core.quota.charges import flight_of
from webhook.core.world.waiting_pods import GangReservations

GANG = GangId("team-a/g")


def reserved(name, count=1, *, until=400, gang=GANG):
    made = pod(count, namespace="team-a", name=name, uid=f"reserved:{name}", gang=Gang(gang, "g"))
    found = flight_of(made, Charge("team-a", Tier.GUARANTEED, gpus(count)), nodes=("n0",))
    return found._replace(lingers=300, until=until)


def names(found):
    return [each.pod.name for each in found]


def test_only_charges_with_a_time_are_reservations():
    table = GangReservations()
    table.set(reserved("a"))
    table.set(reserved("b")._replace(until=0))
    assert names(table.of(GANG)) == ["a"]
    assert GANG in table
    table.discard("reserved:b")
    table.discard("reserved:a")
    assert GANG not in table
    assert table.gangs() == []


def test_the_smallest_that_is_large_enough_fits():
    table = GangReservations()
    for name, count in (("large", 8), ("small", 1), ("middle", 4)):
        table.set(reserved(name, count))
    assert table.fitting(GANG, gpus(2)).pod.name == "middle"
    assert table.fitting(GANG, gpus(9)) is None
    assert table.fitting(GangId("team-a/other"), gpus(1)) is None


def test_the_world_charges_a_reservation_until_it_is_dropped_and_no_member_of_its_gang_has_started():
    place = world(policy(team()), nodes=[node("n0")])
    place.assume(reserved("a", 4))
    assert place.usage("team-a").total == gpus(4)
    assert place.fleet.free("n0", "nvidia.com/gpu") == 6
    assert names(place.gang_reservations.of(GANG)) == ["a"]
    assert not place.gangs.has_started(GANG)
    place.set_pod(resident(1, node="n0", uid="first", gang=GANG))
    assert place.gangs.first(GANG) == "first"
    place.drop_reservation("reserved:a")
    assert place.usage("team-a").total == gpus(1)
    assert GANG not in place.gang_reservations
