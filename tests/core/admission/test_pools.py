"""The pools that a pod may use."""

import pytest

from tests.core.support.force_deleted import delete_by_force
from tests.core.support.make import ALICE, GPU, node, pod, policy, pool, requirement, resident, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.admission.pools import WHOLE_CLUSTER, grows
from webhook.core.model.amounts import TeamName
from webhook.core.model.constraints import Effect, Taint, Toleration
from webhook.core.model.node import Autoscaler
from webhook.core.model.policy import Mode
from webhook.core.model.reasons import Code


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

    def test_pods_deleted_before_a_kubelet_had_them_fill_no_pool(self):
        place = self.place()
        delete_by_force(place, *(resident(10, node="a0", is_acknowledged=False) for _ in range(2)))
        assert admitted(admit(pod(1, pool="a"), ALICE, place)).node_choice.nodes == ("a0",)
        delete_by_force(place, resident(10, node="a0"))
        waits = admitted(admit(pod(1, pool="a"), ALICE, place))
        assert [each.code for each in waits.warnings] == [Code.NO_ROOM_NOW], "its containers may have them, for a time"

    def test_a_pin_is_refused_where_the_end_of_pods_deleted_by_force_makes_no_room(self):
        place = self.place()
        place.set_pod(resident(9, node="a0"))
        delete_by_force(place, resident(1, node="a0"))
        assert codes(admit(pod(2, pool="a"), ALICE, place)) == [Code.POOL_FULL]
        assert [each.code for each in admitted(admit(pod(1, pool="a"), ALICE, place)).warnings] == [Code.NO_ROOM_NOW]

    def test_any_pool_that_offers_all_capabilities_is_allowed(self):
        node_choice = admitted(admit(pod(1, requires=frozenset({"nvlink"})), ALICE, self.place())).node_choice
        assert node_choice.pool == "a"


KARPENTER, CLUSTER_AUTOSCALER = Autoscaler
BROUGHT = {"karpenter.sh/nodepool": "cloud"}
GROUPED = {"cloud.google.com/gke-nodepool": "gpus"}


@pytest.mark.parametrize(
    ("stated", "found", "labels", "want"),
    [
        pytest.param(None, {KARPENTER}, [BROUGHT], True, id="its nodes are Karpenter's"),
        pytest.param(None, {KARPENTER}, [{}, BROUGHT], True, id="one of them is"),
        pytest.param(None, {KARPENTER}, [{}], False, id="none is"),
        pytest.param(None, {KARPENTER}, [], True, id="it has none yet"),
        pytest.param(None, {KARPENTER}, [GROUPED], False, id="they are of a group, and only Karpenter runs"),
        pytest.param(None, {CLUSTER_AUTOSCALER}, [GROUPED], True, id="they are of a group"),
        pytest.param(None, set(), [BROUGHT], False, id="Karpenter is gone"),
        pytest.param(None, set(), [], False, id="nothing adds nodes"),
        pytest.param(False, {KARPENTER}, [BROUGHT], False, id="policy says no"),
        pytest.param(True, set(), [{}], True, id="policy says yes"),
    ],
)
def test_a_pool_grows_where_policy_says_so_or_an_autoscaler_owns_its_nodes(stated, found, labels, want):
    here = [node(f"n{number}", labels={"pool": "a", **each}) for number, each in enumerate(labels)]
    without_gpus = node("cpu", gpus=0, labels={"pool": "a", **BROUGHT, **GROUPED})
    elsewhere = node("other", labels=BROUGHT)
    only = pool("a", node_selector=(("pool", "a"),), is_autoscaled=stated)
    place = world(policy(pools=(only,)), nodes=[*here, without_gpus, elsewhere])
    place.autoscalers = frozenset(found)
    assert grows(only, place) is want


def test_a_pool_whose_nodes_offer_no_gpu_for_a_while_is_no_empty_one():
    place = world(nodes=[node("n0", gpus=0, at_best={GPU: 8})])
    place.autoscalers = frozenset({KARPENTER})
    assert not grows(WHOLE_CLUSTER, place)


def test_without_pools_the_nodes_of_the_cluster_are_the_pool():
    place = world(nodes=[node("n0", labels=BROUGHT)])
    place.autoscalers = frozenset({KARPENTER})
    choice = admitted(admit(pod(1), ALICE, place)).node_choice
    assert (choice.mode, choice.nodes) == (Mode.PREFER, ("n0",))
    waits = admitted(admit(pod(16), ALICE, place))
    assert [each.code for each in waits.warnings] == [Code.NO_ROOM_NOW]
    assert "waits for the autoscaler" in waits.warnings[0].text
