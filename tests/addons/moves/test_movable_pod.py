"""Which pods may move, and where to; tests/addons/moves/command has the reasons for which they stay."""

import pytest

from tests.addons.moves.made import target
from tests.core.support.make import node, pod, policy, pool, requirement, resident, team, world
from tests.core.support.scenes import NOW
from webhook.addons.moves.candidates import WHY_IT_STAYS, MovablePod, Stays, movable_pod, movable_pods, stays_early
from webhook.addons.moves.targets import Movement, make_room
from webhook.core.model.amounts import GpuModel, NodeName, WorkloadName
from webhook.core.model.pod import Replica
from webhook.core.model.policy import BUILT_IN_RESOURCES, LabelSelector
from webhook.core.model.topology import AffinityRule
from webhook.core.reclaim.holds import EvictionTarget, NodeHold
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.reclaim_pods import Controller, ReclaimPod

WEB = {"app": "web"}
APART = AffinityRule(("host",), True, LabelSelector((requirement("app", "In", "web"),)))


def judged(there=None, *, on="n0", template=None, now=NOW, policy_=None, **more):
    cluster = there or world(policy_, nodes=[node(f"n{n}") for n in range(3)])
    running = resident(uid="a", tier=more.pop("tier", "preemptible"), node=on)
    cluster.set_pod(running)
    gpu_pod = ReclaimPod(
        running, controller=more.pop("controller", Controller("apps/v1", "ReplicaSet", "r", "uid-r")), **more
    )
    index = ReclaimIndex(cluster.policy.reclaim)
    index.set(gpu_pod)
    made = template or pod(name="a")
    return cluster, movable_pod(gpu_pod, index.evictable(gpu_pod), lambda: made, cluster, now=now)


def where(cluster, found):
    assert isinstance(found, MovablePod)
    return cluster.fleet.names_of(found.where)


def test_a_borrowing_pod_may_move_to_the_other_nodes_of_its_gpu_model():
    models = [node("n0", model=GpuModel("A")), node("n1", model=GpuModel("B")), node("n2", model=GpuModel("A"))]
    cluster, found = judged(world(nodes=models))
    assert where(cluster, found) == ["n2"]
    assert found.workload == "uid-r"


def test_it_stays_inside_the_pools_of_its_team():
    pools = (pool("own", node_selector=(("pool", "own"),)),)
    nodes = [node("n0", labels={"pool": "own"}), node("n1"), node("n2", labels={"pool": "own"})]
    cluster, found = judged(world(policy(team(), pools=pools), nodes))
    assert where(cluster, found) == ["n2"]


def test_closed_nodes_are_no_place():
    closed = world(nodes=[node("n0"), node("n1", is_cordoned=True), node("n2", is_ready=False)])
    assert judged(closed)[1] is Stays.NO_OTHER_NODE


def test_a_node_that_is_gone_is_no_place_to_move_from():
    _, found = judged(on="elsewhere")
    assert found is Stays.NO_OTHER_NODE


def test_a_guaranteed_pod_moves_only_if_its_owner_says_so():
    assert judged(tier="guaranteed")[1] is Stays.GUARANTEED
    cluster, found = judged(tier="guaranteed", is_movable=True)
    assert where(cluster, found) == ["n1", "n2"]


@pytest.mark.parametrize(("ready", "want"), [(2, Stays.MINIMUM_REPLICAS), (3, None)])
def test_a_workload_keeps_its_minimum_ready(ready, want):
    there = world(nodes=[node(f"n{n}") for n in range(3)])
    replica = Replica(WorkloadName("team-a/web"), minimum=2)
    for number in range(1, 3):
        other = resident(uid=f"b{number}", tier="preemptible", node="n1")
        there.set_pod(other._replace(replica=replica, is_ready=number < ready))
    running = resident(uid="a", tier="preemptible", node="n0")._replace(replica=replica, is_ready=True)
    there.set_pod(running)
    index = ReclaimIndex(there.policy.reclaim)
    gpu_pod = ReclaimPod(running, controller=Controller("apps/v1", "ReplicaSet", "r", "uid-r"))
    index.set(gpu_pod)
    assert stays_early(gpu_pod, index.evictable(gpu_pod), there, now=NOW) is want


@pytest.mark.parametrize(("ready", "listed", "most"), [(4, (), 2), (3, (), 1), (4, ("a3",), 1), (2, (), 0)])
def test_no_plan_moves_more_pods_of_a_workload_than_it_has_beyond_its_minimum(ready, listed, most):
    """However many moves policy allows for one workload: the replacements are not ready at once."""
    there = world(nodes=[node(f"n{n}", gpus=4) for n in range(3)])
    index = ReclaimIndex(there.policy.reclaim, there.minimums)
    replica, controller = Replica(WorkloadName("team-a/web")), Controller("apps/v1", "ReplicaSet", "r", "uid-r")
    there.minimums.set_scaler("team-a/web", replica.workload, 2)
    for number in range(4):
        running = resident(uid=f"a{number}", tier="preemptible", node="n0", replica=replica, is_ready=number < ready)
        there.set_pod(running)
        index.set(ReclaimPod(running, controller=controller))
    targets = tuple(EvictionTarget(uid, "team-a", uid, "need", NOW) for uid in listed)
    index.evictions.pick_up(NodeHold("h", "n0", NOW + 60, (), targets), noticed=lambda _: True)
    leaves = (each for each in index.on_nodes() if each.uid not in listed and each.pod.is_ready)
    found = movable_pods(leaves, lambda each: pod(name=each.uid), index, there, now=NOW, held=0)
    assert len(found.pods) == (ready - len(listed) if most else 0)
    assert found.stays[Stays.MINIMUM_REPLICAS] == (0 if most else ready)
    movement = Movement(
        fleet=there.fleet, movable=found.pods, now=NOW, left=found.left, weights=BUILT_IN_RESOURCES, per_workload=9
    )
    here = there.fleet.bit(NodeName("n0"))
    moves = [[len(room.moves) for room in make_room([target(gpus, slots=here)], movement).rooms] for gpus in (1, 2, 3)]
    assert moves == [[gpus] if gpus <= most else [] for gpus in (1, 2, 3)]


def test_what_its_eviction_loses_counts_from_the_last_checkpoint():
    _, found = judged(started_at=NOW - 100, saved_at=NOW - 10, grace_seconds=0)
    assert found.lost_work(NOW) == 10 * found.victim.demand.gpus
    assert found.lost_work(NOW - 50) == 0


def test_a_pod_with_rules_about_others_stays():
    assert judged(template=pod(name="a", topology=(APART,)))[1] is Stays.TOPOLOGY_RULES


def test_rules_of_others_keep_it_off_their_nodes():
    cluster = world(nodes=[node(f"n{n}", labels={"host": f"n{n}"}) for n in range(3)])
    cluster.set_pod(resident(uid="other", node="n1", anti_affinity_rules=(APART,)))
    cluster, found = judged(cluster, template=pod(name="a", labels=WEB))
    assert where(cluster, found) == ["n2"]


def test_a_pod_whose_devices_count_otherwise_than_it_requests_them_stays():
    assert judged(template=pod(2, name="a"))[1] is Stays.CLAIMS


def test_each_reason_has_words():
    assert WHY_IT_STAYS.keys() == set(Stays)
