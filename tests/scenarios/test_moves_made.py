"""Moves that the evictor makes on a real control plane: places are kept, budgets hold, the waiting pod starts."""

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import evictor, held_nodes
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_moves import BORROWS, SIZE, running, scatter
from tests.scenarios.test_reclaim_care import budget, events_of

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

ON_DEMAND = "defragment: {onDemand: true, minimumRuntime: 0s}"
MOVES = "/apis/fairgate.dev/v1alpha1/reports/moves"


def moves(cluster, namespace):
    return [each for each in cluster.api.get(MOVES)["moves"] if each["pod"].startswith(f"{namespace}/")]


def fix(cluster, namespace, nodes, *, gpus=1):
    """Pods without a controller, which never move: no node but the first can be emptied."""
    for node in nodes:
        create_pod(
            cluster, namespace, pod(f"fixed-{node}", gpus=gpus, nodeSelector={"kubernetes.io/hostname": node}, **SIZE)
        )
        wait_bound(cluster, namespace, f"fixed-{node}")


@pytest.mark.parametrize("no_room", ["wait", "queue"])
def test_scattered_pods_move_to_places_that_are_kept_and_the_wide_one_starts(cluster, no_room):
    nodes = make_nodes(cluster, 3, gpus=4)
    policy = f"{ON_DEMAND}\ndefaults: {{onNoRoom: {no_room}}}"
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate:
        a, b = fairgate.team_a, fairgate.team_b
        there = scatter(cluster, b, nodes, deletion=())
        fix(cluster, a, nodes[1:])
        [moved] = [name for name, node in there.items() if node == nodes[0]]
        create_pod(cluster, a, pod("wide", gpus=4, labels=BORROWS, **SIZE))
        with evictor(fairgate) as process:
            assert wait_bound(cluster, a, "wide", timeout=120) == nodes[0]
            wait_for(cluster, lambda: len(running(cluster, b)) == 3, what="its Job runs it again")
            again = running(cluster, b)
            [entry] = moves(cluster, b)
            assert (entry["pod"], entry["source"], entry["for"]) == (f"{b}/{moved}", nodes[0], f"{a}/wide")
            [new] = set(again) - set(there)
            assert again[new] == entry["destination"], get_pod(cluster, b, new)["metadata"]["annotations"]
            assert {name: again[name] for name in there if name != moved} == {
                name: node for name, node in there.items() if name != moved
            }
            wait_for(cluster, lambda: held_nodes(cluster) == [], what="all holds are over")
            assert len(process.said("evicted")) == 1
            said = events_of(cluster, b, new)["Moved"]
            assert f"was moved from node {nodes[0]} to make room for a larger pod" in said


def test_a_budget_that_allows_none_keeps_all_pods_and_an_event_says_why(cluster):
    nodes = make_nodes(cluster, 2, gpus=4)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=ON_DEMAND) as fairgate:
        a, b = fairgate.team_a, fairgate.team_b
        there = scatter(cluster, b, nodes)
        for name in there:
            app = get_pod(cluster, b, name)["metadata"]["labels"]["app"]
            budget(cluster, b, f"keep-{app}", {"app": app})
        create_pod(cluster, a, pod("wide", gpus=4, labels=BORROWS, **SIZE))
        with evictor(fairgate) as process:
            text = wait_for(
                cluster, lambda: events_of(cluster, a, "wide").get("CannotMakeRoom", ""), what="an Event on the pod"
            )
            assert "its PodDisruptionBudgets allow no eviction now" in text
            assert running(cluster, b) == there
            assert not process.said("evicted")
            assert "nodeName" not in get_pod(cluster, a, "wide")["spec"]
            cluster.kubectl("delete", "poddisruptionbudgets", "--all", "-n", b)
            wait_bound(cluster, a, "wide", timeout=120)
            assert len(list_pods(cluster, b)) >= 2
