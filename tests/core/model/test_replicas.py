"""Replicas under the name of whole GPUs: what they count, when, and never less than a pod may get."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.make import GPU, gpus
from webhook.core.admission.admission import admit
from webhook.core.admission.workload_fit import Part, fit_problems
from webhook.core.model.amounts import ONE_GPU, GpuModel, NodeName
from webhook.core.model.constraints import Constraints, Tier
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.gpu_shares import PRODUCT, REPLICAS, replica_slice, replica_slices, replicas_by, replicas_of
from webhook.core.model.policy import Mode, PlacementRules, Share
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.tiers.tier_changes import tier_changes
from webhook.policy.sections import BUILT_IN

A10 = GpuModel("NVIDIA-A10G")
TWELFTH = ONE_GPU // 12


def node(name, replicas, number=12, model=A10, **more):
    labels = {PRODUCT: model} | ({} if replicas is None else {REPLICAS: str(replicas)})
    return make.node(name, gpus=number, labels=labels, model=model, model_label=PRODUCT, **more)


def policy(*teams, counts=True, **more):
    return replace(make.policy(*teams, resources=BUILT_IN, **more), counts_replicas=counts)


def world(*nodes, **more):
    return make.world(policy(**more), nodes=list(nodes))


def total(place):
    return place.usage("team-a").total


@pytest.mark.parametrize(
    ("label", "want"),
    [("12", 12), ("1", 1), ("0", 1), ("012", 1), ("", 1), (None, 1), ("many", 1), ("-4", 1), ("99999", 1), ("¹²", 1)],
)
def test_the_label_says_how_many_pieces_a_gpu_has(label, want):
    assert replicas_by({} if label is None else {REPLICAS: label}) == want


def test_a_slice_is_named_by_the_number_of_replicas():
    assert replicas_of(replica_slice(12)) == 12
    assert replicas_of(GPU) == replicas_of("nvidia.com/mig-1g.5gb") == 0
    assert replica_slices({"4", "12"}) == ("nvidia.com/gpu/4", "nvidia.com/gpu/12")
    assert replica_slices({"4", "1"}) == replica_slices(()) == ()


def test_a_pod_counts_a_whole_gpu_until_it_is_on_a_node_of_replicas():
    place = world(node("n0", 12))
    waits = make.resident(1, uid="u")
    place.set_pod(waits)
    assert total(place) == gpus(1)
    place.set_pod(waits._replace(node=NodeName("n0")))
    assert total(place) == TWELFTH


def test_a_pod_that_names_the_number_counts_the_part_while_it_waits():
    place = world(node("n0", 12))
    place.set_pod(make.resident(2, slices=("nvidia.com/gpu/12",)))
    assert total(place) == 2 * TWELFTH


@pytest.mark.parametrize(
    "nodes",
    [[], [node("n0", 4)], [node("n0", 12), node("n1", 12, 2)]],
    ids=["no node is known", "only others are", "one offers fewer pieces than one GPU has"],
)
def test_a_number_that_may_be_of_whole_gpus_counts_whole_gpus(nodes):
    place = world(*nodes)
    place.set_pod(make.resident(1, slices=("nvidia.com/gpu/12",)))
    assert total(place) == gpus(1)


def test_another_number_or_none_on_a_node_is_counted_again():
    place = world(node("n0", 12))
    place.set_pod(make.resident(6, node=NodeName("n0")))
    assert total(place) == gpus(1) // 2
    place.set_node(node("n0", 4))
    assert total(place) == 6 * gpus(1) // 4
    place.set_node(node("n0", None))
    assert total(place) == gpus(6)


def test_devices_that_are_not_offered_now_do_not_change_what_a_piece_is():
    place = world(node("n0", 12))
    place.set_pod(make.resident(6, node=NodeName("n0")))
    for left, best in ((3, {GPU: 12}), (0, {GPU: 12}), (0, {})):
        place.set_node(node("n0", 12, left, at_best=best))
        assert total(place) == gpus(1) // 2


def test_another_policy_counts_by_replicas_or_not():
    place = world(node("n0", 12), counts=False)
    place.set_pod(make.resident(6, node=NodeName("n0")))
    assert total(place) == gpus(6)
    place.set_policy(policy())
    assert total(place) == gpus(1) // 2
    assert place.fleet.get("n0").gpus(BUILT_IN) == gpus(1)
    place.set_policy(policy(counts=False))
    assert (total(place), place.fleet.slices.slots) == (gpus(6), 0)


def test_capacity_is_in_gpus_also_of_a_model_that_is_offered_both_ways():
    place = world(node("n0", 12, 24), node("n1", None, 8))
    place.set_pod(make.resident(12, node=NodeName("n0")))
    (found,) = gpu_inventory(place.fleet, place.policy)
    assert (found.model, found.capacity, found.free, found.largest) == (A10, gpus(10), gpus(9), gpus(8))
    assert found.whole_nodes == 1


def test_twelve_pods_of_a_share_of_one_gpu_start_and_one_more_borrows():
    place = make.world(policy(make.team(guaranteed=1)), nodes=[node("n0", 12, 24)])
    for number in range(13):
        decision = admit(make.pod(1), make.ALICE, place)
        assert isinstance(decision, Admit)
        assert decision.charge.gpus == TWELFTH
        assert decision.charge.tier is (Tier.GUARANTEED if number < 12 else Tier.PREEMPTIBLE)
        place.set_pod(make.resident(1, node=NodeName("n0"), tier=str(decision.charge.tier)))


def test_the_pod_is_bound_to_the_label_that_its_charge_is_by():
    decision = admit(make.pod(1), make.ALICE, world(node("n0", 12)))
    assert isinstance(decision, Admit)
    (term,) = decision.node_choice.pool_terms
    assert make.requirement(REPLICAS, "In", "12") in term


def test_a_share_per_model_counts_by_replicas_too():
    team = make.team(guaranteed=0, limit_=4, models={A10: Share(0, gpus(1))})
    place = make.world(policy(team), nodes=[node("n0", 12)])
    decision = admit(make.pod(12), make.ALICE, place)
    assert isinstance(decision, Admit)
    assert (decision.charge.model, decision.charge.gpus) == (A10, gpus(1))
    assert isinstance(admit(make.pod(12), make.ALICE, make.world(policy(team), nodes=[node("n0", None)])), Deny)


def test_the_share_left_by_replicas_promotes_borrowers():
    place = make.world(policy(make.team(guaranteed=1)), nodes=[node("n0", 12)])
    place.set_pod(make.resident(6, uid="old", tier="preemptible", node=NodeName("n0")))
    (change,) = tier_changes(place.policy.teams[0], place)
    assert (change.charge.tier, change.charge.gpus) == (Tier.GUARANTEED, 6 * TWELFTH)


def test_a_whole_workload_counts_by_what_its_pods_can_be_bound_to():
    part = Part("", make.pod(demand=make.demand(1, cpu=100, memory=1)), 12)
    for replicas, want in ((12, []), (None, ["TeamLimitExceeded"])):
        place = make.world(policy(make.team(guaranteed=1, limit_=1)), nodes=[node("n0", replicas)])
        assert [reason.code for reason in fit_problems([part], make.ALICE, place)] == want


SLICED = GpuModel("A100-MIG-3g.20gb")
_REPLICAS = st.sampled_from([None, 2, 12])
_NODES = st.lists(st.tuples(st.sampled_from([A10, SLICED]), _REPLICAS, st.integers(1, 24)), min_size=1, max_size=4)


@given(_NODES, st.sampled_from([None, "2", "12"]), st.integers(1, 4), st.sampled_from(Mode), st.booleans())
def test_no_pod_is_charged_less_than_it_can_get_on_any_possible_node(nodes, named, number, mode, is_open):
    made = [node(f"n{i}", replicas, count, model) for i, (model, replicas, count) in enumerate(nodes)]
    place = world(*made, placement=PlacementRules(mode))
    constraints = Constraints(node_selector=() if named is None else ((REPLICAS, named),))
    slices = replica_slices(constraints.possible(REPLICAS))
    asked = make.pod(number, constraints=constraints, slices=slices, has_open_constraints=is_open)
    decision = admit(asked, make.ALICE, place)
    if isinstance(decision, Deny):
        assert [reason.code for reason in decision.reasons] == ["NeverFits"]
        return
    assert isinstance(decision, Admit)
    node_choice = decision.node_choice
    final = constraints.joined(requirements=node_choice.pool_terms[0] if node_choice.pool_terms else ())
    reach = place.fleet.names_of(place.fleet.matching(final))
    if node_choice.mode in (Mode.AUTO, Mode.REQUIRE) and node_choice.nodes:
        reach = [name for name in reach if name in node_choice.nodes]
    for name in reach:
        (offer,) = place.fleet.get(name).offers(BUILT_IN)
        assert decision.charge.gpus >= number * offer.weight
