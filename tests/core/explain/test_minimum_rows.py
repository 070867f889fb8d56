"""Workloads that are to keep some replicas, as people and the leader's report see them."""

from tests.core.support import make
from webhook.core.explain.team_rows import board_of, minimum_rows, minimums_text, workloads_below
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.pod import Replica


def world_of(**workloads):
    """A world with these workloads: team, minimum, and the pods that are ready and that are not."""
    there = make.world(make.policy(make.team("team-a"), make.team("team-b")), [make.node(gpus=99)])
    for name, (team, minimum, ready, other) in workloads.items():
        for number in range(ready + other):
            replica = Replica(WorkloadName(f"{team}/Deployment/{name}"), minimum)
            uid = f"{name}{number}"
            pod = make.resident(uid=uid, namespace=team, node="n0", replica=replica, is_ready=number < ready)
            there.set_pod(pod)
    return there


SOME = {
    "web10": ("team-a", 1, 3, 0),
    "web9": ("team-a", 2, 3, 0),
    "slow": ("team-b", 2, 1, 2),
    "one": ("team-b", 1, 1, 0),
    "plain": ("team-b", None, 4, 0),
}


def test_those_below_their_minimum_come_first_then_all_by_name():
    there = world_of(**SOME)
    rows = minimum_rows(there)
    assert board_of(there).minimums == tuple(rows)
    assert [(row.workload.rpartition("/")[2], row.team, row.replicas.may_go) for row in rows] == [
        ("slow", "team-b", 0),
        ("web9", "team-a", 1),
        ("web10", "team-a", 2),
        ("one", "team-b", 0),
    ]
    assert [row.team for row in minimum_rows(there, sees=lambda namespace: namespace == "team-a")] == ["team-a"] * 2


def test_the_leader_counts_them_by_team_and_names_no_workload():
    there = world_of(**SOME)
    assert workloads_below(there) == {"team-b": 1}
    assert minimums_text(there) == (
        "workloads: 4 with a minimum; 1 below it (team-b 1); "
        "1 with no more pods than that, which has no effect (team-b 1)"
    )
    assert minimums_text(world_of(web=("team-a", 1, 2, 0))) == "workloads: 1 with a minimum"
    assert minimums_text(world_of(plain=("team-a", None, 2, 0))) == ""
