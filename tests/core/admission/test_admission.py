"""Tier and node choice: what the mutating step decides."""

import pytest

from tests.core.support.make import ALICE, GPU, demand, flight, gpus, mutated, node, pod, policy, resident, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import NotApplicable, Retry
from webhook.core.model.pod import Handling, NamespaceFacts, PriorityTriple, Requester
from webhook.core.model.reasons import Code, refusal_text


def test_first_inside_the_share_then_borrowing_then_refused_with_the_numbers():
    place = world(policy(team(guaranteed=2, limit_=3)))
    tiers = []
    for i in range(3):
        asked = pod(1, name=f"p{i}")
        decision = admitted(admit(asked, ALICE, place))
        made = mutated(asked, decision, uid=f"u{i}")
        verified = admitted(verify(made, ALICE, place))
        made_flight = flight(made, verified.charge, verified.node_choice.nodes[0])
        (place.assume if i == 2 else place.add_pod)(made_flight)
        tiers.append(decision.charge.tier)
    assert tiers == [Tier.GUARANTEED, Tier.GUARANTEED, Tier.PREEMPTIBLE]
    refused = admit(pod(2), ALICE, place)
    assert codes(refused) == [Code.TEAM_LIMIT_EXCEEDED]
    assert refusal_text(refused.reasons) == (
        "exceeded quota: team team-a: requested 2, limit 3, used 2, reserved 1; largest holders: team-a/Pod/p0 1 "
        "(alice@example.com), team-a/Pod/p1 1 (alice@example.com), team-a/Pod/p2 1 (alice@example.com); no request "
        "would pass now: wait until a holder ends, or delete one (TeamLimitExceeded)"
    )


class TestTierLabel:
    def test_preemptible_by_choice_leaves_the_share_alone(self):
        decision = admitted(admit(pod(1, tier_label="preemptible"), ALICE, world()))
        assert (decision.charge.tier, decision.reason.code) == (Tier.PREEMPTIBLE, Code.BORROWS_BY_CHOICE)

    def test_guaranteed_means_never_borrow(self):
        place = world(policy(team(guaranteed=1)))
        assert admitted(admit(pod(1, tier_label="guaranteed"), ALICE, place)).charge.tier is Tier.GUARANTEED
        refused = admit(pod(2, tier_label="guaranteed"), ALICE, place)
        assert codes(refused) == [Code.GUARANTEED_SHARE_USED]
        assert refused.reasons[0].text.endswith(
            "; without label fairgate.dev/tier it would be admitted as preemptible, and borrow idle GPUs now"
        )

    def test_a_pod_that_must_wait_for_idle_gpus_gets_a_warning(self):
        place = world(
            policy(team(guaranteed=1)), nodes=[node()], residents=[resident(10, node="n0", namespace="team-b")]
        )
        refused = admit(pod(2, tier_label="guaranteed"), ALICE, place)
        assert refused.reasons[0].text.endswith("and borrow idle GPUs once nodes have room")

    @pytest.mark.parametrize(
        ("asked", "held"),
        [
            pytest.param(pod(4, tier_label="guaranteed"), 0, id="the team's limit is exceeded, too"),
            pytest.param(pod(1, tier_label="guaranteed", pool="gone"), 1, id="so is the pool"),
            pytest.param(pod(11, tier_label="guaranteed"), 0, id="so are the nodes"),
        ],
    )
    def test_removing_the_label_is_advised_only_where_it_helps(self, asked, held):
        place = world(policy(team(guaranteed=1, limit_=3)), residents=[resident(held)] if held else [])
        refused = admit(asked, ALICE, place)
        assert Code.GUARANTEED_SHARE_USED in codes(refused)
        assert not any("without label" in reason.text for reason in refused.reasons)

    def test_an_unknown_word_is_refused(self):
        assert codes(admit(pod(1, tier_label="gold"), ALICE, world())) == [Code.INVALID_REQUEST]


class TestOnlyCounted:
    @pytest.mark.parametrize("handling", [Handling.DAEMON_SET, Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER])
    def test_pods_placed_by_others_are_charged_and_held_to_the_limit(self, handling):
        place = world(policy(team(limit_=2)))
        decision = admit(pod(2, handling=handling), ALICE, place)
        assert isinstance(decision, NotApplicable)
        assert (decision.reason.code, decision.charge.gpus) == (Code.COUNTED_ONLY, gpus(2))
        assert codes(admit(pod(3, handling=handling), ALICE, place)) == [Code.TEAM_LIMIT_EXCEEDED]

    def test_a_static_pod_is_never_refused_if_a_kubelet_reports_it(self):
        place = world(policy(team(limit_=1)))
        mirror = pod(2, handling=Handling.MIRROR)
        assert isinstance(admit(mirror, Requester("system:node:n0"), place), NotApplicable)
        assert codes(admit(mirror, ALICE, place)) == [Code.TEAM_LIMIT_EXCEEDED, Code.INVALID_REQUEST]

    def test_exempt_namespaces_are_counted_and_nothing_else(self):
        place = world(policy(team(limit_=1), exempt_namespaces=("kube-*",)))
        place.set_namespace(NamespaceFacts(Namespace("team-a"), {"fairgate.dev/exempt": "true"}))
        for namespace in ("kube-system", "team-a"):
            decision = admit(pod(2, namespace=namespace), ALICE, place)
            assert isinstance(decision, NotApplicable)
            assert (decision.reason.code, decision.charge.gpus) == (Code.EXEMPT, gpus(2))

    def test_a_pod_without_gpus_is_not_applicable(self):
        decision = admit(pod(demand=demand(0)), ALICE, world())
        assert isinstance(decision, NotApplicable)
        assert (decision.reason.code, decision.charge) == (Code.NO_GPU, None)


def test_a_tiers_priority_class_is_a_triple_or_is_retried():
    place = world(policy(priority_classes={Tier.GUARANTEED: "high"}))
    assert isinstance(admit(pod(1), ALICE, place), Retry)
    place.set_priority_class(PriorityTriple("high", 1000))
    assert admitted(admit(pod(1), ALICE, place)).priority == PriorityTriple("high", 1000)
    assert admitted(admit(pod(1, priority_class="mine"), ALICE, place)).priority is None


def test_an_intact_decision_is_kept_and_a_forged_one_is_replaced():
    place = world(policy(team(guaranteed=1)))
    asked = pod(1)
    done = mutated(asked, admitted(admit(asked, ALICE, place)))
    again = admit(done, ALICE, place)
    assert isinstance(again, NotApplicable)
    assert again.reason.code is Code.ALREADY_DECIDED
    forged = done._replace(demand=demand(2))
    assert admitted(admit(forged, ALICE, place)).charge.tier is Tier.PREEMPTIBLE


def test_a_pod_that_is_decided_again_keeps_its_original_request():
    place = world(policy(team(guaranteed=3)))
    asked = pod(2, tier_label="guaranteed")
    done = mutated(asked, admitted(admit(asked, ALICE, place)))
    place.set_pod(resident(2))
    assert codes(admit(done, ALICE, place)) == [Code.GUARANTEED_SHARE_USED], "never borrow"
    plain = mutated(pod(2), admitted(admit(pod(2), ALICE, world(policy(team(guaranteed=3))))))
    assert admitted(admit(plain, ALICE, place)).charge.tier is Tier.PREEMPTIBLE


def test_the_same_request_has_the_same_answer():
    def ask():
        return admit(pod(2), ALICE, world(residents=[resident(3, node="n2", uid="r")]))

    assert ask() == ask()
    assert ask().node_choice.nodes[0] == "n2"
    assert GPU in dict(ask().demand.devices)
