"""The evictor's view of pods: those that share devices by a claim, and those whose labels were not written yet."""

from tests.core.support import claims, make
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.cluster_view import ClusterView

CLASS = claims.GPU_CLASS.implicit_resource


def borrower(uid):
    return ReclaimPod(claims.resident(uid, claims.SHARING, node="n0", tier="preemptible"))


def held(view, uid):
    """The GPUs that a possible victim is charged for, and the devices whose room it takes."""
    demand = view.reclaim_index.victim_index.get(uid).demand
    return demand.gpus / make.gpus(1), dict(demand.requests).get(CLASS, 0)


async def test_users_of_a_claim_are_victims_and_each_is_as_the_world_counts_it_now():
    view = ClusterView(make.policy(resources=claims.BUILT_IN))
    view.world.set_device_class(claims.GPU_CLASS.name, claims.GPU_CLASS)
    view.world.set_claim(claims.SHARED, claims.spec(2))
    for uid in ("a", "b", "c"):
        view.set_pod(borrower(uid))
    assert [held(view, uid) for uid in "abc"] == [(2, 2), (0, 0), (0, 0)]
    view.remove_pod("a")
    assert [held(view, uid) for uid in "bc"] == [(2, 2), (0, 0)]
    view.remove_pod("b")
    view.remove_pod("c")
    assert len(view.reclaim_index.victim_index) == 0


async def test_a_pod_that_came_before_its_claim_is_a_victim_once_that_is_known():
    """Watches have no order: at the start of an evictor, pods may be listed before claims, and never change again."""
    view = ClusterView(make.policy(resources=claims.BUILT_IN))
    view.set_pod(borrower("a"))
    assert len(view.reclaim_index.victim_index) == 0
    view.world.set_device_class(claims.GPU_CLASS.name, claims.GPU_CLASS)
    view.world.set_claim(claims.SHARED, claims.spec(2))
    view.remove_pod("another")
    assert held(view, "a") == (2, 2)


def bare(uid, *, created, node="n0"):
    return ReclaimPod(make.resident(2, uid=uid, tier=None, node=node, created=created))


def victims(view):
    return {each.uid: each.team for each in view.reclaim_index.victim_index}


async def test_a_pod_without_labels_is_a_victim_where_it_borrows_before_they_are_written():
    view = ClusterView(make.policy(make.team(guaranteed=4)))
    for number in range(3):
        view.set_pod(bare(f"p{number}", created=number))
    assert victims(view) == {}
    view.find_borrowers()
    assert victims(view) == {"p2": "team-a"}
    view.set_policy(make.policy(make.team(guaranteed=2)))
    view.find_borrowers()
    assert victims(view) == {"p1": "team-a", "p2": "team-a"}
    view.remove_pod("p0")
    view.find_borrowers()
    assert victims(view) == {"p2": "team-a"}, "the share has room for another one, and no label was written"


async def test_labels_that_were_written_count_from_then_on():
    view = ClusterView(make.policy(make.team(guaranteed=2)))
    for number in range(2):
        view.set_pod(bare(f"p{number}", created=number))
    view.find_borrowers()
    view.set_pod(ReclaimPod(make.resident(2, uid="p1", node="n0", created=1)))
    assert victims(view) == {}
    view.find_borrowers()
    assert victims(view) == {"p0": "team-a"}, "the labeled one has the share"
    view.set_pod(ReclaimPod(make.resident(2, uid="p0", node="n0", tier="preemptible")))
    view.find_borrowers()
    assert victims(view) == {"p0": "team-a"}
