"""Room and charges of pods as their node, model, claims and weights become known."""

from dataclasses import replace

from tests.core.support.make import ALICE, GPU, demand, gpus, node, pod, policy, resident, team, world
from tests.core.support.models import MODELS, TEAM, of_model, on
from tests.core.support.outcomes import codes
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import GpuModel, NodeName, TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.policy import Share
from webhook.core.model.reasons import Code
from webhook.core.placement.best_nodes import best_nodes


def test_a_pod_that_waits_for_a_model_counts_on_it_once_it_was_seen():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100", gpus=0), of_model("t0", "T4")])
    place.set_pod(resident(2, uid="waits", model="H100"))
    assert (place.usage("team-a").model("H100"), place.usage("team-a").model("T4")) == (gpus(2), 0)
    assert codes(admit(pod(1, constraints=on("H100")), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


def test_a_pod_without_a_model_counts_on_each_until_it_runs():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), of_model("t0", "T4")])
    waits = resident(2, uid="waits", tier=None)
    place.set_pod(waits)
    assert [place.usage("team-a").model(model) for model in MODELS] == [gpus(2), gpus(2)]
    place.set_pod(waits._replace(node="t0"))
    assert [place.usage("team-a").model(model) for model in MODELS] == [0, gpus(2)]


A = TeamName("team-a")


def test_a_waiting_pod_takes_room_on_the_node_of_its_decision():
    place = world(residents=[resident(4, uid="u", promised=NodeName("n1"))])
    assert place.fleet.free(NodeName("n1"), GPU) == 6
    assert place.usage(A).waiting == gpus(4)
    place.set_pod(resident(4, uid="u", node="n0"))
    assert (place.fleet.free(NodeName("n0"), GPU), place.fleet.free(NodeName("n1"), GPU)) == (6, 10)
    assert place.usage(A).waiting == 0


def test_a_pod_of_a_removed_node_stays_charged_and_comes_back_with_it():
    place = world(residents=[resident(4, node="n0", uid="u")])
    place.remove_node(NodeName("n0"))
    assert place.usage(A).total == gpus(4)
    place.set_node(node("n0"))
    assert place.fleet.free(NodeName("n0"), GPU) == 6


def test_unlabeled_pods_count_against_the_guaranteed_share():
    place = world(residents=[resident(3, tier=None), resident(2, tier="preemptible")])
    assert (place.usage(A).guaranteed, place.usage(A).preemptible) == (gpus(3), gpus(2))


def test_a_model_share_follows_the_node_a_pod_runs_on():

    share = {GpuModel("A100"): Share(gpus(2), gpus(4))}
    place = world(policy(team(models=share)), nodes=[node("n0")], residents=[resident(3, node="n0")])
    assert place.usage(A).model(GpuModel("A100")) == 0
    place.set_node(node("n0", model=GpuModel("A100")))
    assert place.usage(A).model(GpuModel("A100")) == gpus(3)


def test_other_weights_charge_the_same_pods_again():
    name = "example.com/half-gpu"
    made = resident(1)._replace(demand=demand(1, **{name: 2}))
    place = world(residents=[made])
    before = place.policy
    place.set_policy(replace(before, resources={**before.resources, name: gpus(0.5)}, hash="p2"))
    assert place.usage(A).total == gpus(2)


def test_a_pod_that_changes_in_place_counts_as_if_it_had_come_so():
    """Bound where its room was promised, relabeled, terminating: the room stays, the charge follows."""
    promised = resident(4, uid="u", tier="guaranteed", promised=NodeName("n0"))
    bound = promised._replace(node=NodeName("n0"), promised=None)
    steps = [promised, bound, bound._replace(tier_label="preemptible"), bound._replace(is_terminating=True)]
    place = world()
    for step in steps:
        place.set_pod(step)
        fresh = world(residents=[step])
        for each in (place, fresh):
            each.set_pod(resident(1, uid="other", node="n1", tier="preemptible"))
        usage, want = place.usage(A), fresh.usage(A)
        assert (usage.total, usage.guaranteed, usage.waiting) == (want.total, want.guaranteed, want.waiting)
        assert [place.fleet.free(each.name, GPU) for each in fresh.fleet.nodes()] == [
            fresh.fleet.free(each.name, GPU) for each in fresh.fleet.nodes()
        ]
        ask, everywhere = demand(2), place.fleet.open_bits
        for tier in Tier:
            got = best_nodes(place.fleet, ask, everywhere, count=8, tier=tier)
            assert got == best_nodes(fresh.fleet, ask, everywhere, count=8, tier=tier)
