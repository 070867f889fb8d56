"""Who marks own borrowing pods as gangs sends no eviction to others."""

import pytest

from tests.evictor.support.stage import POOR

OLD, NEW = "2025-01-01T00:00:00Z", "2025-11-25T00:00:00Z"


def crowd(stage, marks, *, owners=lambda _: []):
    """Older pods of an honest team on one node, younger ones of a team that marks them on another."""
    for number, name in enumerate(("n0", "n1")):
        stage.node(name)
        for place in range(4):
            own = {"gang": marks(place), "ownerReferences": owners(place)} if number else {}
            since = NEW if number else OLD
            who = "forged" if number else "honest"
            stage.borrower(f"{who}{place}", on=name, created=since, status={"startTime": since}, **own)


async def left_of(stage, need):
    """The borrowers of each that are left once a pod has got its room."""
    async with stage.leader(POOR):
        stage.asker("need", gpus=need)
        await stage.until(lambda: len(stage.names()) <= 9 - need)
    return [sum(name.startswith(who) for name in stage.names()) for who in ("honest", "forged")]


@pytest.mark.parametrize("need", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 4])
async def test_labels_on_own_pods_send_no_eviction_to_older_pods_of_others(stage, need, size):
    crowd(stage, lambda place: {"ray.io/cluster": f"g{place // size}"})
    assert await left_of(stage, need) == [4, 4 - need]


async def test_pairs_that_their_objects_declare_cost_what_their_pods_cost(stage):
    """A tenant who makes a RayCluster for each two pods gains nothing where both of them are needed."""

    def cluster(place):
        name = f"g{place // 2}"
        return [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": name, "controller": True}]

    crowd(stage, lambda place: {"ray.io/cluster": f"g{place // 2}"}, owners=cluster)
    assert await left_of(stage, 2) == [4, 2]
