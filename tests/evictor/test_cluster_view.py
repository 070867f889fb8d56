"""The evictor's view of pods that share devices by a claim: who is charged for them, and who takes their room."""

from tests.core.support import claims, make
from webhook.core.reclaim.reclaim_pod import ReclaimPod
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
