"""Pods that find room only on nodes that reject those of their team."""

from tests.core.support.make import ALICE, node, pod, policy, resident, world
from tests.core.support.outcomes import admitted, outcome_of
from tests.core.support.rejecting import NOW, first_node, place_of, reject
from webhook.core.admission.admission import admit
from webhook.core.model.decision import Queue
from webhook.core.model.policy import Mode, PlacementRules
from webhook.core.model.reasons import Code
from webhook.core.placement.rejecting_nodes import FIRST_SECONDS


class TestPodsThatFindNoOtherRoom:
    def full(self, **more):
        place = place_of(2, **more)
        reject(place)
        place.set_pod(resident(8, node="n1", namespace="team-b"))
        return place

    def test_they_wait_in_line_though_policy_has_them_wait_in_kube_scheduler(self):
        decision = admit(pod(4), ALICE, self.full())
        assert isinstance(decision, Queue)
        assert decision.reason.code == Code.WAITS_FOR_ROOM
        assert decision.reason.text == (
            "waits: no node has nvidia.com/gpu 4 free now, and node n0 rejected the last 3 pods of team team-a "
            "(UnexpectedAdmissionError); it fits on 2 nodes once empty and open; 1st in the queue"
        )

    def test_those_that_it_has_no_room_for_wait_in_kube_scheduler(self):
        place = self.full()
        place.set_pod(resident(6, node="n0", namespace="team-b"))
        assert outcome_of(pod(4), place)[:2] == ("waits", Code.NO_ROOM_NOW)

    def test_where_every_node_rejects_they_wait_and_one_tries(self):
        place = place_of(1)
        reject(place)
        decision = admit(pod(4), ALICE, place)
        assert isinstance(decision, Queue)
        assert "NeverFits" not in decision.reason.text
        place.tick(NOW + FIRST_SECONDS)
        assert first_node(place) == "n0"

    def test_preferred_nodes_exclude_it_by_its_hostname(self):
        labels = {"kubernetes.io/hostname": "host-of-n0"}
        rules = PlacementRules(keep_whole=0, mode=Mode.PREFER)
        place = world(policy(placement=rules), nodes=[node("n0", gpus=8, labels=labels), node("n1", gpus=8)])
        place.tick(NOW)
        assert admitted(admit(pod(1), ALICE, place)).node_choice.pool_terms == ()
        reject(place)
        choice = admitted(admit(pod(1), ALICE, place)).node_choice
        assert choice.nodes == ("n1",)
        [[elsewhere]] = choice.pool_terms
        assert (elsewhere.key, elsewhere.operator, elsewhere.values) == (
            "kubernetes.io/hostname",
            "NotIn",
            ("host-of-n0",),
        )

    def test_another_team_is_not_queued(self):
        place = self.full()
        assert first_node(place, "team-b") == "n0"
