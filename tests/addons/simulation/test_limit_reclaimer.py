"""Room under limits in whole runs: a pod inside its share gets it from borrowers of its department."""

from dataclasses import replace

from tests.addons.simulation.loads import T0, policy_of, simulated, task, team, waits, world_of
from webhook.core.model.amounts import ONE_GPU, DepartmentName
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import Defaults, Department, OnLimit, ReclaimRules, Share

HOME = Department(DepartmentName("home"), None, Share(4 * ONE_GPU, 4 * ONE_GPU))


def world(*, on_limit=OnLimit.REJECT, notice=0, nodes=2):
    """Teams a (guaranteed nothing) and b (4) of a department of 4 GPUs, on nodes of 4; c is of no department."""
    of_home = [replace(team(name, share), departments=(HOME,)) for name, share in (("a", 0), ("b", 4))]
    rules = ReclaimRules(notice_seconds=notice)
    policy = policy_of(*of_home, team("c", 0), departments=(HOME,), defaults=Defaults(on_limit=on_limit), reclaim=rules)
    return world_of(policy, nodes=nodes, gpus=4)


def victims(simulation):
    return [(each.at - T0, each.record.task.name) for each in simulation.evictions]


def test_a_pod_inside_its_share_starts_once_a_borrower_of_its_department_is_gone():
    tasks = [task(f"borrowed-{number}", "a", 1, seconds=500) for number in range(4)]
    records, simulation = simulated(world(), task("far", "c", 2, seconds=500), *tasks, task("own", "b", 1, at=30))
    assert (records["own"].tier, records["own"].wait_seconds) == (Tier.GUARANTEED, 0)
    assert [at for at, _ in victims(simulation)] == [30]
    assert victims(simulation)[0][1].startswith("borrowed-")


def test_the_victim_has_its_notice_and_the_pod_waits_for_it():
    records, simulation = simulated(world(notice=20), task("borrowed", "a", 4, seconds=500), task("own", "b", 1, at=30))
    assert waits(records)["own"] == 20
    assert victims(simulation) == [(50, "borrowed")]


def test_a_borrower_that_ends_in_time_is_not_followed_by_another_one_and_no_victim_goes():
    tasks = task("short", "a", 2, seconds=40), task("long", "a", 2, seconds=500)
    again = task("again", "a", 2, at=35, seconds=500)
    records, simulation = simulated(world(notice=60, on_limit=OnLimit.QUEUE), *tasks, again, task("own", "b", 2, at=30))
    assert waits(records)["own"] == 10
    assert victims(simulation) == []
    assert records["again"].started - T0 >= 130


def test_borrowers_of_others_stay_where_they_cannot_help():
    full = task("far", "c", 4, seconds=500), task("near", "a", 4, seconds=500)
    records, simulation = simulated(world(nodes=2), *full, task("own", "b", 4, at=30))
    assert [name for _, name in victims(simulation)] == ["near"]
    assert records["far"].evictions == 0


def test_a_gang_inside_its_share_starts_whole_once_enough_borrowers_are_gone():
    borrowed = [task(f"borrowed-{number}", "a", 1, seconds=500) for number in range(4)]
    own = [task(f"own-{number}", "b", 1, at=30, gang="g", size=3) for number in range(3)]
    records, simulation = simulated(world(notice=20), *borrowed, *own)
    assert [waits(records)[each.name] for each in own] == [20, 20, 20]
    assert {records[each.name].tier for each in own} == {Tier.GUARANTEED}
    assert len(victims(simulation)) == 3


def test_nothing_goes_for_a_gang_that_is_not_whole():
    borrowed = [task(f"borrowed-{number}", "a", 1, seconds=500) for number in range(4)]
    records, simulation = simulated(world(), *borrowed, task("own", "b", 1, at=30, gang="g", size=3))
    assert victims(simulation) == []
    # once no pod of it came within the bound, and the borrowers have ended: with room for the others
    assert records["own"].started == T0 + 500
