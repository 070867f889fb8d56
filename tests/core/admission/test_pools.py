"""The pools that a pod may use."""

import pytest

from tests.core.support.make import ALICE, node, pod, policy, pool, requirement, resident, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.model.names import TeamName
from webhook.core.model.reason import Code
from webhook.core.model.selector import Effect, Taint, Toleration


class TestPools:
    NODES = (
        node("a0", labels={"pool": "a"}, taints=(Taint("gpu", Effect.NO_SCHEDULE),)),
        node("b0", labels={"pool": "b", "mem": "81920"}),
    )
    A = pool(
        "a",
        node_selector=(("pool", "a"),),
        tolerations=(Toleration("gpu", exists=True),),
        capabilities=frozenset({"nvlink"}),
    )
    B = pool("b", affinity=(requirement("mem", "Gt", "40000"),), teams=frozenset({TeamName("team-b")}))

    def place(self, **more):
        return world(policy(team(), team("team-b"), pools=(self.A, self.B), **more), nodes=list(self.NODES))

    def test_the_chosen_pools_selector_and_tolerations_come_along(self):
        node_choice = admitted(admit(pod(1), ALICE, self.place())).node_choice
        assert (node_choice.pool, node_choice.nodes) == ("a", ("a0",))
        assert (node_choice.node_selector, node_choice.tolerations) == (self.A.node_selector, self.A.tolerations)

    def test_affinity_expressions_are_the_pools_terms(self):
        node_choice = admitted(admit(pod(1, namespace="team-b", pool="b"), ALICE, self.place())).node_choice
        assert (node_choice.nodes, node_choice.pool_terms) == (("b0",), (self.B.affinity,))

    def test_the_best_node_over_all_pools_wins(self):
        place = self.place()
        place.set_pod(resident(7, node="b0", namespace="team-b"))
        assert admitted(admit(pod(2, namespace="team-b"), ALICE, place)).node_choice.nodes == ("b0",)

    def test_pools_that_are_all_full_are_alternatives(self):
        place = self.place()
        for name in ("a0", "b0"):
            place.set_pod(resident(10, node=name, namespace="team-b"))
        node_choice = admitted(admit(pod(1, namespace="team-b"), ALICE, place)).node_choice
        assert node_choice.pool_terms == ((requirement("pool", "In", "a"),), self.B.affinity)
        assert (node_choice.nodes, node_choice.node_selector, node_choice.tolerations) == ((), (), self.A.tolerations)

    @pytest.mark.parametrize(
        ("asked", "want"),
        [
            pytest.param({"pool": "nowhere"}, Code.UNKNOWN_POOL, id="a pool that does not exist"),
            pytest.param({"pool": "b"}, Code.NO_POOL_ALLOWED, id="a pool of another team"),
            pytest.param({"requires": frozenset({"tpu"})}, Code.NO_POOL_ALLOWED, id="a capability that no pool offers"),
        ],
    )
    def test_pins_and_requirements_that_cannot_be_met_are_refused(self, asked, want):
        assert codes(admit(pod(1, **asked), ALICE, self.place())) == [want]

    def test_a_pin_to_a_full_pool_is_refused_not_sent_elsewhere(self):
        place = self.place()
        place.set_pod(resident(10, node="a0"))
        assert codes(admit(pod(1, pool="a"), ALICE, place)) == [Code.POOL_FULL]

    def test_any_pool_that_offers_all_capabilities_is_allowed(self):
        node_choice = admitted(admit(pod(1, requires=frozenset({"nvlink"})), ALICE, self.place())).node_choice
        assert node_choice.pool == "a"
