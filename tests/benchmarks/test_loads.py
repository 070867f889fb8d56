"""The loads of the comparison with other systems, and what each system adds to them."""

from collections import Counter
from dataclasses import replace

import pytest
import yaml

from benchmarks.side_by_side.fairgate import policy_of
from benchmarks.side_by_side.kueue import queues as kueue_queues
from benchmarks.side_by_side.loads import GPUS_PER_NODE, Order, Sizes, Team, Work, load_of
from benchmarks.side_by_side.systems import SYSTEMS
from benchmarks.side_by_side.volcano import queues as volcano_queues
from tests.control_plane.objects import GPU
from webhook.policy.watch import load

SIZES = Sizes(nodes=8, jobs=60, gangs=3, gang_size=16, quota=16, seconds=3, per_second=10)


@pytest.mark.parametrize("work", Work)
def test_a_load_has_names_of_its_own_and_fits_its_quota(work):
    made = load_of(work, SIZES)
    names = [(order.team.name, order.name) for order in (*made.before, *made.orders)]
    assert len(set(names)) == len(names)
    assert sum(team.guaranteed for team in made.shares.teams) == made.shares.quota
    assert made.shares.quota <= SIZES.nodes * GPUS_PER_NODE
    assert made.shares.is_limit == (made.shares.quota < SIZES.nodes * GPUS_PER_NODE)


def test_the_first_team_creates_half_of_the_jobs():
    count = Counter(order.team.name for order in load_of(Work.JOBS, replace(SIZES, jobs=4000)).orders)
    assert count["a"] == pytest.approx(2000, abs=100)
    assert count["b"] == pytest.approx(1000, abs=100)


def test_gangs_are_spread_over_the_jobs():
    made = load_of(Work.GANGS, SIZES)
    assert made.pods == 60 + 3 * 16
    assert [number for number, order in enumerate(made.orders) if order.pods > 1] == [0, 21, 42]


def test_one_department_has_borrowed_every_gpu_and_the_other_asks_for_its_half():
    made = load_of(Work.DEPARTMENTS, SIZES)
    assert len(made.before) == SIZES.nodes * GPUS_PER_NODE
    assert made.gpus == sum(made.shares.departments.values()) // 2
    assert {order.team.department for order in made.before} != {order.team.department for order in made.orders}


def test_slots_come_free_at_a_rate_once_all_that_waits_was_created():
    made = load_of(Work.QUEUE_RELEASES, SIZES)
    ends = [order.seconds for order in made.before]
    assert ends[1] - ends[0] == pytest.approx(1 / SIZES.per_second)
    assert made.orders[0].seconds == pytest.approx(len(made.before) / SIZES.per_second)


@pytest.mark.parametrize("is_bare", [False, True], ids=["job", "bare pod"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_marks_objects_and_changes_nothing_that_they_ask_for(name, is_bare):
    order = Order(Team("a", 4), "x", pods=1 if is_bare else 16, seconds=2.5, is_bare=is_bare)
    made, plain = SYSTEMS[name].manifest(order), order.manifest()
    spec, asked = (each["spec"] if is_bare else each["spec"]["template"]["spec"] for each in (made, plain))
    assert spec["containers"] == asked["containers"]
    assert (made == plain) == (name == "stock" or (name == "fairgate" and is_bare))


def test_the_policy_of_fairgate_is_one(tmp_path):
    for work in Work:
        (tmp_path / "policy.yaml").write_text(policy_of(load_of(work, SIZES).shares))
        found = load(tmp_path)
        assert {team.name for team in found.teams} == {team.name for team in load_of(work, SIZES).shares.teams}


def test_every_system_gets_the_same_tree_of_shares():
    shares = load_of(Work.DEPARTMENTS, SIZES).shares
    fairgate = {team["name"]: team for team in yaml.safe_load(policy_of(shares))["teams"]}
    kueue = {made["metadata"]["name"]: made["spec"] for made in kueue_queues(shares) if made["kind"] == "ClusterQueue"}
    volcano = {made["metadata"]["name"]: made["spec"] for made in volcano_queues(shares)}
    for team in shares.teams:
        [quota] = [
            each for each in kueue[team.name]["resourceGroups"][0]["flavors"][0]["resources"] if each["name"] == GPU
        ]
        assert fairgate[team.name]["gpus"]["guaranteed"] == int(quota["nominalQuota"]) == team.guaranteed
        assert volcano[team.name]["deserved"][GPU] == quota["nominalQuota"]
        assert fairgate[team.name]["department"] == kueue[team.name]["cohortName"] == volcano[team.name]["parent"]
