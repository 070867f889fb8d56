"""Operators change nodes: shares, charges and reasons meanwhile, from the first label to the last."""

import pytest

from tests.core.support.maintained import DRIVER, MIG, live
from tests.core.support.make import GPU, demand, gpus, node, pod, policy, resident, team
from tests.core.support.outcomes import outcome_of
from tests.core.support.reclaim_pods import NOW, asker, borrower, indexed
from webhook.core.explain.node_rows import node_row
from webhook.core.model.amounts import GpuModel
from webhook.core.model.policy import Share
from webhook.core.reclaim.reclaim import plan
from webhook.core.reclaim.reclaim_plan import NoPlan
from webhook.core.reclaim.snapshot import largest_room, pods_within_share, take_snapshot
from webhook.observe.metrics import maintenance_rows

PRODUCT, WHOLE, SLICED = "nvidia.com/gpu.product", GpuModel("A100"), GpuModel("A100-MIG-1g.5gb")


def labelled(name, model, **more):
    labels = {PRODUCT: model} if model else {}
    return node(name, model=model, model_label=PRODUCT if model else "", labels=labels, **more)


def test_cordoned_for_an_upgrade_it_says_the_upgrade():
    place = live(node("n0", is_cordoned=True, maintenance=DRIVER))
    assert "while its driver is being upgraded" in outcome_of(pod(4), place)[2]
    assert node_row(place.fleet.get("n0"), (), place).state == "driver is being upgraded"
    place.set_node(node("n0", is_cordoned=True, is_ready=False, maintenance=DRIVER))
    assert node_row(place.fleet.get("n0"), (), place).state == "not ready"


def test_no_borrower_is_evicted_for_room_on_it():
    pods = (borrower("a", 10, on="n0"), asker("b", 4))
    reclaim_index, place = indexed(*pods, policy=policy(team(guaranteed=0), team("team-b")), nodes=1)
    place.set_node(node("n0", maintenance=MIG))
    found = plan(pods_within_share(reclaim_index, place), take_snapshot(reclaim_index, place, now=NOW))
    assert (found.moves, [each.cause for each in found.refused]) == ((), [NoPlan.NO_NODE])
    assert largest_room(reclaim_index, place) == 0
    place.set_node(node("n0"))
    found = plan(pods_within_share(reclaim_index, place), take_snapshot(reclaim_index, place, now=NOW))
    assert [victim.uid for move in found.moves for victim in move.victims] == ["a"]


@pytest.mark.parametrize("after", [WHOLE, SLICED], ids=["whole as before", "sliced now"])
@pytest.mark.parametrize("before", [WHOLE, SLICED], ids=["was whole", "was sliced"])
def test_a_pod_on_it_stays_charged_as_the_kubelet_gave_it(before, after):
    """Its devices are gone, then its labels, then both are there again, and other pods come."""
    place = live(labelled("n0", before, gpus=7))
    old, new = resident(7, uid="old", node="n0"), resident(7, uid="new", namespace="team-b", node="n0")
    place.set_pod(old)
    own = gpus(7) if before is WHOLE else gpus(1)
    states = [
        labelled("n0", before, gpus=0, maintenance=MIG, at_best={GPU: 7}),
        labelled("n0", "", gpus=0, maintenance=MIG),
        labelled("n0", after, gpus=7),
    ]
    for each in states:
        place.set_node(each)
        place.set_pod(old._replace(version=old.version + 1))
        assert place.usage("team-a").total in {own, max(own, gpus(7 if after is WHOLE else 1))}
        assert place.usage("team-a").total >= own
        if each is not states[-1]:
            assert place.usage("team-a").total == own
    place.set_pod(new)
    assert place.usage("team-b").total == (gpus(7) if after is WHOLE else gpus(1)), "a new pod counts as the node is"
    place.remove_pod("old")
    assert place.usage("team-a").total == 0


def test_without_its_label_a_node_keeps_its_pods_in_the_share_of_their_model():
    shares = policy(team(models={WHOLE: Share(gpus(2), gpus(4))}))
    place = live(labelled("n0", WHOLE, gpus=8), of=shares)
    place.set_pod(resident(4, uid="r", node="n0"))
    place.set_node(labelled("n0", "", gpus=8, maintenance=DRIVER))
    assert place.usage("team-a").model(WHOLE) == gpus(4)
    place.set_node(labelled("n0", WHOLE, gpus=8))
    assert place.usage("team-a").model(WHOLE) == gpus(4)


def test_its_gpus_are_exported_as_they_were():
    place = live(labelled("n0", WHOLE, gpus=8), labelled("n1", WHOLE, gpus=8))

    def exported():
        return [(row.labels, row.values) for row in maintenance_rows(place)]

    assert exported() == []
    place.set_node(labelled("n0", WHOLE, gpus=8, maintenance=DRIVER))
    place.set_node(labelled("n1", WHOLE, gpus=0, at_best={GPU: 8}, maintenance=MIG))
    assert exported() == [((WHOLE,), (16.0,))]
    place.set_node(labelled("n1", "", gpus=0, maintenance=MIG))
    assert exported() == [((WHOLE,), (16.0,))]
    place.remove_node("n1")
    place.set_node(labelled("n0", WHOLE, gpus=8))
    assert exported() == []


def test_shares_do_not_depend_on_what_nodes_offer():
    place = live(node("n0", gpus=8, maintenance=MIG))
    place.set_pod(resident(8, uid="r", node="n0", demand=demand(8)))
    before = place.usage("team-a").guaranteed
    place.set_node(node("n0", gpus=0, maintenance=MIG))
    assert place.usage("team-a").guaranteed == before == gpus(8)
