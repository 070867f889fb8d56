"""Which objects of gangs are read, how often, and which size counts."""

from tests.core.support.make import policy, team, world
from tests.core.support.waiting import member
from webhook.core.line.gang_plans import READ_SECONDS, READS, READS_OF_TEAM, UNREAD_SECONDS, GangPlan, GangPlans
from webhook.core.model.amounts import GangId

GANG = GangId("team-a/g")


def plans_of(*pods):
    names = dict.fromkeys(["team-a", "team-b", *(pod.pod.namespace for pod in pods)])
    place = world(policy(*map(team, names)), nodes=[])
    for pod in pods:
        place.set_waiting(pod)
    return GangPlans(place), list(dict.fromkeys(pod.pod.gang.id for pod in pods))


def test_what_an_object_says_goes_before_what_pods_declare():
    plans, _ = plans_of(member("a", size=2), member("b", size=3))
    assert plans.size(GANG).number == plans.declared(GANG) == 3
    plans.learn(GANG, GangPlan(problem="gone"))
    assert plans.size(GANG).number == 3
    assert plans.learn(GANG, GangPlan(5))
    assert not plans.learn(GANG, GangPlan(5)), "no news"
    assert not plans.learn(GANG, GangPlan(problem="gone"))
    assert (plans.size(GANG).number, plans.size(GANG).counts_all) == (5, False)
    plans.forget(GANG)
    assert plans.plan(GANG) is None


def test_only_gangs_with_an_object_are_read():
    plans, gangs = plans_of(member("k", "kueue", size=2), member("j", "js", is_described=True))
    for gang in gangs:
        plans.want(gang)
    assert plans.has_unread(now=100)
    assert [pod.pod.name for pod in plans.unread(gangs, now=100)] == ["j"]
    assert not plans.has_unread(now=100 + READ_SECONDS)
    assert [pod.pod.name for pod in plans.unread(gangs, now=100 + READ_SECONDS)] == ["j"], "again"
    assert not plans.is_to_be_read(gangs[0], waited=0)
    assert plans.is_to_be_read(gangs[1], waited=UNREAD_SECONDS)
    assert not plans.is_to_be_read(gangs[1], waited=UNREAD_SECONDS + 1)
    plans.learn(gangs[1], GangPlan(2))
    assert not plans.is_to_be_read(gangs[1], waited=0)


def test_no_team_keeps_the_gangs_of_others_from_being_read():
    crowd = [member(f"m{number}", f"g{number}", is_described=True) for number in range(50)]
    plans, gangs = plans_of(*crowd, member("own", "own", is_described=True, namespace="team-b"))
    for gang in gangs:
        plans.want(gang)
    found = [pod.pod.name for pod in plans.unread(gangs, now=100)]
    assert "own" in found
    assert len(found) == 1 + READS_OF_TEAM
    assert plans.unread(gangs, now=100) == []
    assert not plans.has_unread(now=100), "so many in a second"
    assert plans.has_unread(now=101)
    again = {pod.pod.name for pod in plans.unread(gangs, now=101)}
    assert again.isdisjoint(found)
    assert len(again) == READS_OF_TEAM


def test_all_teams_together_are_bounded():
    pods = [member(f"m{n}", f"g{n}", is_described=True, namespace=f"team-{n % 20}") for n in range(100)]
    plans, gangs = plans_of(*pods)
    assert len(plans.unread(gangs, now=100)) == READS
