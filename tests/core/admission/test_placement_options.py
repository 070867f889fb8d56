"""A pool cut by GPU model, for teams with shares per model."""

from tests.core.support.make import ALICE, gpus, node, pod, policy, requirement, resident, team, world
from tests.core.support.models import LABEL, TEAM, of_model
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import GpuModel
from webhook.core.model.constraints import Constraints, Operator, Requirement, Tier
from webhook.core.model.decision import Admit
from webhook.core.model.policy import Share
from webhook.core.model.reasons import Code

A100, T4 = GpuModel("A100"), GpuModel("T4")


class TestModels:
    NODES = (
        node("a0", gpus=4, model=A100, model_label="gpu.product", labels={"gpu.product": "A100"}),
        node("t0", gpus=8, model=T4, model_label="gpu.product", labels={"gpu.product": "T4"}),
    )
    TEAM = team(guaranteed=10, limit_=14, models={A100: Share(gpus(2), gpus(3))})

    def place(self):
        return world(policy(self.TEAM), nodes=list(self.NODES))

    def test_the_model_is_charged_and_pinned(self):
        decision = admitted(admit(pod(1), ALICE, self.place()))
        assert (decision.charge.model, decision.node_choice.nodes) == (A100, ("a0",))
        assert decision.node_choice.pool_terms == ((requirement("gpu.product", "In", "A100"),),)

    def test_over_the_models_limit_the_other_model_serves(self):
        place = self.place()
        place.set_pod(resident(3, node="a0"))
        assert admitted(admit(pod(1), ALICE, place)).charge.model == T4

    def test_a_pod_that_insists_on_the_model_is_refused(self):
        place = self.place()
        place.set_pod(resident(3, node="a0"))
        only = Constraints(node_selector=(("gpu.product", "A100"),))
        assert codes(admit(pod(1, constraints=only), ALICE, place)) == [Code.MODEL_LIMIT_EXCEEDED]

    def test_over_the_models_guaranteed_share_it_borrows(self):
        only = Constraints(node_selector=(("gpu.product", "A100"),))
        assert admitted(admit(pod(3, constraints=only), ALICE, self.place())).charge.tier is Tier.PREEMPTIBLE
        refused = admit(pod(3, constraints=only, tier_label="guaranteed"), ALICE, self.place())
        assert codes(refused) == [Code.GUARANTEED_SHARE_USED]


def test_a_list_of_nodes_without_a_model_excludes_those_with_one():
    place = world(policy(TEAM), nodes=[of_model("h0", "H100"), node("plain")], residents=[resident(2, node="h0")])
    decision = admit(pod(1, has_open_constraints=True), ALICE, place)
    assert isinstance(decision, Admit)
    assert decision.node_choice.pool_terms == ((Requirement(LABEL, Operator.DOES_NOT_EXIST),),)
