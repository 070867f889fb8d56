"""MIG slices under the name of whole GPUs: their names, their weights, and when they count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.make import GPU, gpus
from webhook.core.admission.admission import admit
from webhook.core.admission.workload_fit import Part, fit_problems
from webhook.core.model.amounts import CPU, MEMORY, ONE_GPU, PODS, GpuModel, NodeName
from webhook.core.model.constraints import Constraints, NodeTerm, Tier
from webhook.core.model.decision import Admit, Deny
from webhook.core.model.gpu_shares import PRODUCT, slice_of
from webhook.core.model.policy import Mode, PlacementRules, ReclaimRules, Share
from webhook.core.placement.best_nodes import gpu_inventory
from webhook.core.reclaim.reclaim_index import ReclaimIndex
from webhook.core.reclaim.snapshot import largest_room
from webhook.core.tiers.tier_changes import tier_changes
from webhook.policy.sections import BUILT_IN

THIN, THICK, WHOLE = (GpuModel(f"A100{suffix}") for suffix in ("-MIG-1g.5gb", "-MIG-3g.20gb", ""))


@pytest.mark.parametrize(
    ("product", "want"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "nvidia.com/mig-1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "nvidia.com/mig-1g.5gb.me"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1c.2g.10gb", "nvidia.com/mig-1c.2g.10gb"),
        ("NVIDIA-A100-SXM4-40GB", None),
        ("NVIDIA-A100-SXM4-40GB-SHARED", None),
        ("NVIDIA-A100-SXM4-40GB-MIG-INVALID", None),
        ("-MIG-1g.5gb", None),
        ("A-MIG-1g.5gb,B", None),
        ("A" * 63 + "-MIG-1g.5gb", None),
    ],
)
def test_the_product_label_names_the_profile(product, want):
    assert slice_of(product) == want


def node(name, model, number=7, **more):
    return make.node(name, gpus=number, labels={PRODUCT: model}, model=model, model_label=PRODUCT, **more)


def world(*nodes, **more):
    return make.world(make.policy(resources=BUILT_IN, **more), nodes=list(nodes))


def total(world_):
    return world_.usage("team-a").total


def pinned(*products):
    return Constraints(terms=(NodeTerm((make.requirement(PRODUCT, "In", *products),)),))


def test_a_pod_counts_whole_gpus_until_it_is_on_slices_and_slices_from_then_on():
    place = world(node("n0", THIN))
    waits = make.resident(7, uid="u")
    place.set_pod(waits)
    assert total(place) == gpus(7)
    place.set_pod(waits._replace(node=NodeName("n0")))
    assert total(place) == gpus(1)


def test_a_pod_that_is_bound_to_slices_counts_them_while_it_waits_and_when_its_node_is_gone():
    place = world(node("n0", THIN))
    waits = make.resident(7, uid="u", slices=("nvidia.com/mig-1g.5gb",))
    place.set_pod(waits)
    assert total(place) == gpus(1)
    place.set_pod(waits._replace(node=NodeName("n0")))
    place.remove_node(NodeName("n0"))
    place.set_pod(waits._replace(node=NodeName("n0"), is_terminating=True))
    assert total(place) == gpus(1)


def test_pods_that_are_seen_before_their_node_are_counted_again_with_it():
    place = world()
    place.set_pod(make.resident(7, node=NodeName("n0")))
    assert total(place) == gpus(7)
    place.set_node(node("n0", THIN))
    assert total(place) == gpus(1)


def test_a_repartitioned_node_counts_its_new_slices():
    place = world(node("n0", THIN))
    place.set_pod(make.resident(2, node=NodeName("n0")))
    place.set_node(node("n0", THICK, 2))
    assert total(place) == 2 * 3 * ONE_GPU // 7
    place.set_node(node("n0", WHOLE, 2))
    assert total(place) == gpus(2)
    assert place.fleet.slices.slots == 0


def test_the_share_left_by_slices_promotes_borrowers():
    place = make.world(make.policy(make.team(guaranteed=1), resources=BUILT_IN), nodes=[node("n0", THIN)])
    place.set_pod(make.resident(6, uid="old", tier="preemptible"))
    assert tier_changes(place.policy.teams[0], place) == ()
    place.set_pod(make.resident(6, uid="old", tier="preemptible", node=NodeName("n0")))
    (change,) = tier_changes(place.policy.teams[0], place)
    assert (change.charge.tier, change.charge.gpus) == (Tier.GUARANTEED, 6 * ONE_GPU // 7)


def test_another_policy_weighs_slices_by_its_own_weights():
    place = world(node("n0", THIN))
    place.set_pod(make.resident(7, node=NodeName("n0")))
    place.set_policy(make.policy(resources={**BUILT_IN, "nvidia.com/mig-1g.5gb": ONE_GPU // 4}))
    assert total(place) == 7 * ONE_GPU // 4
    place.set_policy(make.policy())  # names no profile
    assert total(place) == gpus(7)


def test_capacity_and_free_amounts_are_in_slices():
    place = world(node("n0", THIN, 14), node("n1", WHOLE, 8))
    place.set_pod(make.resident(7, node=NodeName("n0")))
    found = {each.model: (each.capacity, each.free, each.largest) for each in gpu_inventory(place.fleet, place.policy)}
    assert found == {THIN: (gpus(2), gpus(1), gpus(1)), WHOLE: (gpus(8), gpus(8), gpus(8))}


def test_the_largest_room_on_slices_is_a_slice():
    place = world(node("n0", THIN, 14))
    assert largest_room(ReclaimIndex(ReclaimRules()), place) == gpus(2)


def test_a_whole_workload_counts_by_what_its_pods_can_be_bound_to():
    def problem_codes(*nodes, **more):
        part = Part("", make.pod(demand=make.demand(1, cpu=100, memory=1), **more), 14)
        place = make.world(make.policy(make.team(guaranteed=1, limit_=2), resources=BUILT_IN), nodes=list(nodes))
        found = [reason.code for reason in fit_problems([part], make.ALICE, place)]
        return [code for code in found if code != "AnyModel"]

    thin = node("n0", THIN, 14)
    assert problem_codes(thin) == []
    assert problem_codes(thin, node("n1", WHOLE, 8)) == [], "all of them may get slices"
    assert problem_codes(node("n0", WHOLE, 14)) == ["TeamLimitExceeded"]
    assert problem_codes(thin, constraints=pinned(WHOLE)) == ["TeamLimitExceeded", "NeverFits"]


_MODELS = st.sampled_from([THIN, THICK, WHOLE])
_NODES = st.lists(st.tuples(_MODELS, st.integers(1, 8)), min_size=1, max_size=4)
_PINS = st.lists(st.lists(_MODELS, min_size=1, max_size=3, unique=True), max_size=2)


@given(_NODES, _PINS, st.integers(1, 4), st.sampled_from(Mode), st.booleans())
def test_no_pod_is_charged_less_than_it_can_get_on_any_possible_node(nodes, pins, number, mode, is_open):
    rules = PlacementRules(mode)
    place = world(*(node(f"n{i}", model, count) for i, (model, count) in enumerate(nodes)), placement=rules)
    terms = tuple(NodeTerm((make.requirement(PRODUCT, "In", *each),)) for each in pins)
    constraints = Constraints(terms=terms or None)
    products = constraints.possible(PRODUCT)
    names = tuple(sorted({slice_of(each) for each in products})) if WHOLE not in products else ()
    asked = make.pod(number, constraints=constraints, slices=names, has_open_constraints=is_open)
    decision = admit(asked, make.ALICE, place)
    if isinstance(decision, Deny):
        assert [reason.code for reason in decision.reasons] == ["NeverFits"]
        assert not place.fleet.with_capacity(asked.demand, place.fleet.matching(constraints))
        return
    assert isinstance(decision, Admit)
    node_choice = decision.node_choice
    final = constraints.joined(requirements=node_choice.pool_terms[0] if node_choice.pool_terms else ())
    reach = place.fleet.names_of(place.fleet.matching(final))
    if node_choice.mode in (Mode.AUTO, Mode.REQUIRE) and node_choice.nodes:
        reach = [name for name in reach if name in node_choice.nodes]
    weights = {THIN: ONE_GPU // 7, THICK: 3 * ONE_GPU // 7, WHOLE: ONE_GPU}
    for name in reach:
        assert decision.charge.gpus >= number * weights[place.fleet.get(name).model]
    assert decision.charge.gpus == decision.demand.gpus
    assert dict(decision.demand.requests).keys() == {CPU, MEMORY, PODS, GPU}


@pytest.mark.parametrize("models", [(), (THIN, WHOLE)], ids=["one share", "shares per model"])
def test_a_pod_that_slices_can_never_hold_is_refused_for_its_whole_gpus_not_bound_to_slices(models):
    """Else it would wait for slices that no node offers, charged less than the whole GPUs it needs."""
    team = make.team(guaranteed=0, limit_=2, models={model: Share(0, gpus(2)) for model in models})
    place = make.world(make.policy(team, resources=BUILT_IN), nodes=[node("n0", THIN, 2), node("n1", WHOLE, 8)])
    decision = admit(make.pod(4), make.ALICE, place)
    assert isinstance(decision, Deny)
    want = ["TeamLimitExceeded", "ModelLimitExceeded"] if models else ["TeamLimitExceeded"]
    assert [reason.code for reason in decision.reasons] == want
    assert all("requested 4, limit 2" in reason.text for reason in decision.reasons)


def test_a_pod_that_names_its_node_counts_what_that_has_whatever_its_selector_says():
    place = world(node("n0", WHOLE), node("n1", THIN))
    named = make.pod(1, slices=("nvidia.com/mig-1g.5gb",), constraints=pinned(THIN), node_name=NodeName("n0"))
    assert place.with_claims(named).demand.gpus == ONE_GPU
    assert place.with_claims(named._replace(node_name=NodeName("n1"), slices=())).demand.gpus == ONE_GPU // 7
