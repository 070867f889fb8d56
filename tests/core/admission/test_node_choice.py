"""The nodes, pool and model that are chosen for a pod."""

import pytest

from tests.core.support.make import (
    ALICE,
    JOB,
    JOB_CONTROLLER,
    commit,
    mutated,
    node,
    pod,
    policy,
    pool,
    requirement,
    resident,
    world,
)
from tests.core.support.models import LABEL, TEAM, of_model
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import ANY_MODEL
from webhook.core.model.constraints import Constraints, Effect, NodeTerm, Taint
from webhook.core.model.decision import Admit
from webhook.core.model.pod import Owner
from webhook.core.model.policy import Mode, PlacementRules
from webhook.core.model.reasons import Code


class TestPlaces:
    @pytest.mark.parametrize("owner", [JOB, None])
    def test_pods_get_the_two_best_nodes_and_two_far_away(self, owner):
        place = world(nodes=[node(f"n{i:02}") for i in range(40)])
        requester = ALICE if owner is None else JOB_CONTROLLER
        nodes = admitted(admit(pod(1, owner=owner), requester, place)).node_choice.nodes
        assert nodes == ("n00", "n01", "n17", "n26")

    @pytest.mark.parametrize(("mode", "want"), [("auto", 1), ("require", 1), ("prefer", 8)])
    def test_pods_that_are_spread_by_default_are_bound_to_one_node(self, mode, want):
        place = world(policy(placement=PlacementRules(Mode(mode))), nodes=[node(f"n{i}") for i in range(40)])
        deployed = pod(1, owner=Owner("ReplicaSet", "api-1"), is_spread_by_default=True)
        assert len(admitted(admit(deployed, JOB_CONTROLLER, place)).node_choice.nodes) == want

    def test_in_autoscaled_pools_the_choice_is_only_preferred(self):
        place = world(policy(pools=(pool("cloud", is_autoscaled=True),)))
        node_choice = admitted(admit(pod(1), ALICE, place)).node_choice
        assert (node_choice.mode, node_choice.nodes[0]) == (Mode.PREFER, "n0")

    def test_the_pin_of_mode_require_names_one_node(self):
        place = world(policy(placement=PlacementRules(Mode.REQUIRE)))
        assert admitted(admit(pod(1), ALICE, place)).node_choice.nodes == ("n0",)

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(node("n0", is_ready=False), id="not ready"),
            pytest.param(node("n0", is_cordoned=True), id="cordoned"),
            pytest.param(node("n0", taints=(Taint("x", Effect.NO_SCHEDULE),)), id="tainted"),
            pytest.param(node("n0", cpu=1000), id="no cpu"),
            pytest.param(node("n0", memory=1), id="no memory"),
            pytest.param(node("n0", pods=0), id="no pod left"),
            pytest.param(node("n0", gpus=0), id="no GPU"),
        ],
    )
    def test_nodes_that_cannot_take_it_are_left_out(self, other):
        place = world(nodes=[other, node("n1")])
        assert admitted(admit(pod(1), ALICE, place)).node_choice.nodes == ("n1",)

    def test_the_pods_own_constraints_hold(self):
        nodes = [node("n0", labels={"zone": "a"}), node("n1", labels={"zone": "b"}), node("n2", labels={"zone": "b"})]
        place = world(nodes=nodes)
        constraints = Constraints(
            node_selector=(("zone", "b"),), terms=(NodeTerm((), (requirement("metadata.name", "NotIn", "n1"),)),)
        )
        assert admitted(admit(pod(1, constraints=constraints), ALICE, place)).node_choice.nodes == ("n2",)

    def test_no_room_now_admits_with_a_warning_and_no_node(self):
        place = world(nodes=[node("n0", gpus=2)], residents=[resident(2, node="n0")])
        decision = admitted(admit(pod(1), ALICE, place))
        assert (decision.node_choice.nodes, [w.code for w in decision.warnings]) == ((), [Code.NO_ROOM_NOW])

    def test_what_no_node_could_ever_hold_is_refused(self):
        assert codes(admit(pod(11), ALICE, world())) == [Code.NEVER_FITS]

    def test_constraints_that_are_not_evaluated_soften_the_mode(self):
        assert admitted(admit(pod(1, has_open_constraints=True), ALICE, world())).node_choice.mode is Mode.PREFER

    def test_mode_off_names_no_node(self):
        place = world(policy(placement=PlacementRules(Mode.OFF)))
        assert admitted(admit(pod(1), ALICE, place)).node_choice.nodes == ()


def test_without_nodes_every_model_must_have_room():
    place = world(policy(TEAM), nodes=[])
    first = admit(pod(2), ALICE, place)
    assert isinstance(first, Admit)
    assert first.charge.model == ANY_MODEL
    written = mutated(pod(2), first)
    committed = verify(written, ALICE, place)
    assert isinstance(committed, Admit)
    commit(place, written, committed.charge, None)
    assert codes(admit(pod(1), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]


def test_without_nodes_the_pools_label_names_the_model():
    pools = (pool("h", affinity=(requirement(LABEL, "In", "H100"),), is_autoscaled=True),)
    place = world(policy(TEAM, pools=pools), nodes=[of_model("t0", "T4")])
    first = admit(pod(2), ALICE, place)
    assert isinstance(first, Admit)
    assert first.charge.model == "H100"
    assert codes(admit(pod(3), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]
