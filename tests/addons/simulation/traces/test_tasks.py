"""From rows to pods: teams and namespaces, gangs, jobs over several nodes, models, parts of GPUs."""

from dataclasses import replace

import pytest

from tests.addons.simulation.loads import policy_of, team, world_of
from webhook.addons.simulation.traces.formats import NodeRow, Row, TraceError, nodes_of, with_shares
from webhook.addons.simulation.traces.load import ORIGIN, Reading, tasks_of
from webhook.core.model.amounts import ONE_GPU
from webhook.core.world.world import World

POLICY = policy_of(team("vision", 12), team("nlp", 4))


def tasks(*rows, world=None, **more):
    return tasks_of(rows, world or world_of(POLICY, nodes=2), Reading("t.csv", **more))


def problems(*rows, **more):
    with pytest.raises(TraceError) as caught:
        tasks(*rows, **more)
    return list(caught.value.problems)


def row(gpus=1, *, line=2, created=0, seconds=60, **more):
    return Row(line, f"r{line}", gpus, created, seconds, **{"team": "vision", **more})


def test_a_row_becomes_a_pod_of_its_team_from_the_origin_on():
    second, first = row(2, created=500, line=3), row(created=440)
    found = tasks(second, first)
    assert [(each.name, each.created - ORIGIN, each.pod.namespace) for each in found] == [
        ("r2", 0, "vision"),
        ("r3", 60, "vision"),
    ]
    assert found[1].pod.demand.gpus == 2 * ONE_GPU


def test_a_namespace_decides_on_the_team():
    [found] = tasks(row(team="", namespace="nlp"))
    assert (found.team, found.pod.namespace) == ("nlp", "nlp")


def test_pods_of_one_row_and_rows_of_one_gang_start_together():
    found = tasks(row(8, pods=3), row(1, gang="g", line=3), row(2, gang="g", pods=2, line=4))
    assert [(each.name, each.pod.gang.size) for each in found] == [
        ("r2-0", 3),
        ("r2-1", 3),
        ("r2-2", 3),
        ("r3", 3),
        ("r4-0", 3),
        ("r4-1", 3),
    ]
    assert len({each.pod.gang.id for each in found}) == 2
    assert all(each.pod.gang.is_requested for each in found)


def test_a_job_that_is_larger_than_a_node_becomes_a_gang_of_equal_pods():
    found = tasks(row(18, is_job=True))
    assert [each.pod.demand.gpus // ONE_GPU for each in found] == [6, 6, 6]
    assert {each.pod.gang.size for each in found} == {3}


def test_rows_without_a_team_are_dealt_by_guaranteed_share_and_seed():
    rows = [row(team="", line=2 + number) for number in range(400)]
    dealt = [each.team for each in tasks(*rows, seed=1)]
    assert dealt == [each.team for each in tasks(*rows, seed=1)]
    assert dealt != [each.team for each in tasks(*rows, seed=2)]
    assert 250 < dealt.count("vision") < 350  # three quarters of the guaranteed GPUs
    assert {each.team for each in tasks(*(r._replace(team="x") for r in rows), is_dealt=True)} == {"vision", "nlp"}


def test_teams_of_a_trace_may_be_renamed():
    assert [each.team for each in tasks(row(team="vc9"), teams={"vc9": "nlp"})] == ["nlp"]


def test_a_team_of_globs_gets_a_namespace_that_matches():
    policy = policy_of(replace(team("vision", 4), namespaces=("vision-*",)))
    [found] = tasks(row(), world=world_of(policy))
    assert found.pod.namespace == "vision-simulated"


def test_parts_of_gpus_are_parts_on_nodes_of_a_table_and_whole_elsewhere():
    shared = World(with_shares(POLICY))
    for node in nodes_of([NodeRow("n", 2, "T4")], is_shared=True):
        shared.set_node(node)
    part = row(milli=250)
    assert [each.pod.demand.gpus for each in tasks(part, world=shared)] == [ONE_GPU // 4]
    assert [each.pod.demand.gpus for each in tasks(part)] == [ONE_GPU]


def test_models_that_no_node_has_do_not_count_beside_others():
    world = World(POLICY)
    for node in nodes_of([NodeRow("n", 2, "T4")], is_shared=False):
        world.set_node(node)
    [found] = tasks(row(models=("T4", "X")), world=world)
    assert found.pod.constraints.demanded("nvidia.com/gpu.product") == "T4"
    assert problems(row(models=("X",)), world=world) == ["t.csv:2: no node has GPU model X; models of the world: T4"]


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([row(team="x")], "t.csv:2: unknown team x; teams of the policy: vision, nlp", id="unknown team"),
        pytest.param([row(team="", namespace="x")], "t.csv:2: namespace x belongs to no team", id="unknown namespace"),
        pytest.param(
            [row(gang="g", pods=300), row(gang="g", pods=300, line=3)],
            "t.csv:3: gang g has more than 500 members; so many start together at most",
            id="a large gang",
        ),
    ],
)
def test_what_fits_no_policy_is_said_with_its_line(rows, want):
    assert problems(*rows)[0].startswith(want)


def test_a_world_without_gpus():
    assert problems(row(), world=World(POLICY)) == ["the world has no node with GPUs"]
