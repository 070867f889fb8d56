"""Members of gangs that exist and do not wait in line."""

from tests.core.support.make import policy, resident, team, world
from webhook.core.model.amounts import GangId
from webhook.core.world.waiting_pods import GangMembers

GANG = GangId("team-a/g")


def test_a_pod_with_gpus_starts_its_gang_and_one_without_has_only_come():
    members = GangMembers()
    members.set(resident(0, uid="cpu", gang=GANG))
    assert (members.has_started(GANG), members.others(GANG)) == (False, 1)
    members.set(resident(1, uid="gpu", gang=GANG))
    assert members.has_started(GANG)
    members.discard("gpu")
    members.discard("gpu")
    assert not members.has_started(GANG)


def test_pods_that_are_being_deleted_or_change_their_gang_leave_it():
    members, other = GangMembers(), GangId("team-a/other")
    members.set(resident(1, uid="a", gang=GANG))
    members.set(resident(1, uid="a", gang=other))
    assert (members.has_started(GANG), members.has_started(other)) == (False, True)
    members.set(resident(1, uid="a", gang=other, is_terminating=True))
    assert not members.has_started(other)


def test_the_world_keeps_them_by_its_events():
    place = world(policy(team()), residents=[resident(1, node="n0", uid="a", gang=GANG)])
    assert place.gangs.has_started(GANG)
    place.remove_pod("a")
    assert not place.gangs.has_started(GANG)
