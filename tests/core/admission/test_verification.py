"""The commit: intact mutations are charged, altered ones refused, lost races retried."""

import pytest

from tests.core.support.make import ALICE, commit, demand, gpus, mutated, node, pod, policy, resident, team, world
from webhook.core.admission.admission import admit
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import GangId, Namespace, NodeName, PoolName, TeamName
from webhook.core.model.constraints import NO_CONSTRAINTS, Constraints, Gang, Tier
from webhook.core.model.decision import Admit, Deny, Retry
from webhook.core.model.node import Autoscaler
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import Pool
from webhook.core.model.reasons import Code
from webhook.core.quota.charges import InFlightCharge
from webhook.core.world.world import World


def passed(asked, place):
    decision = admit(asked, ALICE, place)
    assert isinstance(decision, Admit), decision
    return mutated(asked, decision)


def test_an_intact_pod_is_charged_and_takes_the_first_nodes_room():
    place = world()
    verified = verify(passed(pod(3), place), ALICE, place)
    assert isinstance(verified, Admit)
    assert (verified.charge.team, verified.charge.tier, verified.node_choice.nodes) == (
        "team-a",
        Tier.GUARANTEED,
        ("n0",),
    )


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param({"team_label": "team-b"}, id="another team's label"),
        pytest.param({"team_label": None}, id="team label gone"),
        pytest.param({"tier_label": None}, id="tier label gone"),
        pytest.param({"tier_label": "gold"}, id="a tier that is none"),
        pytest.param({"decision_annotation": "{}"}, id="decision emptied"),
        pytest.param({"decision_annotation": "[" * 5000}, id="decision is garbage"),
        pytest.param({"decision_annotation": '{"demand":{"nvidia.com/gpu":1e999}}'}, id="decision requests infinity"),
        pytest.param({"decision_annotation": None}, id="decision gone, labels left"),
        pytest.param({"demand": demand(4)}, id="more GPUs than decided"),
        pytest.param({"constraints": NO_CONSTRAINTS}, id="affinity taken off"),
    ],
)
def test_changes_after_the_decision_are_refused(altered):
    place = world()
    decision = verify(passed(pod(3), place)._replace(**altered), ALICE, place)
    assert isinstance(decision, Deny)
    assert {reason.code for reason in decision.reasons} == {Code.MUTATION_ALTERED}


def test_a_pod_that_skipped_the_mutating_step_is_retried():
    decision = verify(pod(1, uid="u"), ALICE, world())
    assert isinstance(decision, Retry)
    assert decision.reason.code is Code.MUTATION_MISSING


def test_limits_are_judged_again_with_or_without_the_mutation():
    place = world(policy(team(limit_=2)))
    made = passed(pod(2), place)
    place.set_pod(resident(1))
    for each in (made, pod(2, uid="raw")):
        decision = verify(each, ALICE, place)
        assert isinstance(decision, Deny)
        assert [reason.code for reason in decision.reasons] == [Code.TEAM_LIMIT_EXCEEDED]


class TestLostRaces:
    def retried(self, made, place):
        decision = verify(made, ALICE, place)
        assert isinstance(decision, Retry), decision
        assert decision.reason.code is Code.RACE_LOST

    def test_the_last_guaranteed_gpu_was_taken_meanwhile(self):
        place = world(policy(team(guaranteed=1)))
        made = passed(pod(1), place)
        place.set_pod(resident(1))
        self.retried(made, place)

    def test_all_chosen_nodes_filled_up(self):
        place = world(nodes=[node("n0", gpus=2)])
        made = passed(pod(2), place)
        place.set_pod(resident(1, node="n0"))
        self.retried(made, place)

    def test_the_policy_changed(self):
        place = world()
        made = passed(pod(1), place)
        place.set_policy(policy(hash="p2"))
        self.retried(made, place)


def test_the_next_listed_node_serves_when_the_first_filled_up():
    place = world()
    made = passed(pod(8), place)
    place.set_pod(resident(8, node="n0"))
    verified = verify(made, ALICE, place)
    assert isinstance(verified, Admit)
    assert verified.node_choice.nodes == ("n1",)


def test_a_waiting_pod_without_nodes_is_charged():
    place = world(nodes=[node("n0", gpus=1)], residents=[resident(1, node="n0")])
    verified = verify(passed(pod(1), place), ALICE, place)
    assert isinstance(verified, Admit)
    assert verified.node_choice.nodes == ()


def test_forty_concurrent_mutated_pods_never_exceed_the_limit():
    place = world(policy(team(guaranteed=20, limit_=20)))
    waiting = [passed(pod(1), place)._replace(uid=f"u{i}", name=f"u{i}") for i in range(40)]
    outcomes = []
    for made in waiting:
        verified = verify(made, ALICE, place)
        outcomes.append(type(verified))
        if isinstance(verified, Admit):
            commit(place, made, verified.charge, verified.node_choice.nodes[0])
    assert (outcomes.count(Admit), outcomes.count(Deny)) == (20, 20)
    assert place.usage(TeamName("team-a")).total == gpus(20)


def test_constraints_of_the_user_may_stay_beside_the_node_choice():
    place = world(nodes=[node("n0", labels={"zone": "a"}), node("n1", labels={"zone": "b"})])
    asked = pod(1, constraints=Constraints(node_selector=(("zone", "b"),)))
    verified = verify(passed(asked, place), ALICE, place)
    assert isinstance(verified, Admit)
    assert verified.node_choice.nodes == ("n1",)


def test_only_the_pod_of_a_pod_group_is_without_nodes_by_name():
    place = world()
    group = Gang(GangId("team-a/schedulingGroup=g"), "g", is_pod_group=True)
    grouped = passed(pod(3, gang=group), place)
    assert isinstance(verify(grouped, ALICE, place), Admit)
    assert isinstance(verify(grouped._replace(gang=None), ALICE, place), Deny), "the group was taken away"
    named = passed(pod(3), place)._replace(gang=group)
    assert isinstance(verify(named, ALICE, place), Admit), "a server of an older version named its nodes"
    assert isinstance(verify(named._replace(constraints=NO_CONSTRAINTS), ALICE, place), Deny)


def test_a_repeated_request_has_the_same_answer():
    place = world(policy(team(limit_=2, guaranteed=2)))
    asked = passed(pod(2), place)._replace(uid="u")
    first = verify(asked, ALICE, place)
    assert isinstance(first, Admit)
    place.assume(InFlightCharge(resident(2, uid="u"), first.charge, NodeName("n0")))
    again = verify(asked, ALICE, place)
    assert isinstance(again, Admit)
    assert (again.charge, again.reason.code) == (first.charge, Code.ALREADY_DECIDED)
    assert isinstance(verify(asked._replace(uid="another"), ALICE, place), Deny)


def test_a_decision_with_half_a_character_is_refused_without_repeating_it():
    place = world()
    asked = passed(pod(3), place)
    annotation = (asked.decision_annotation or "").replace("alice@example.com", "\\ud800")
    assert annotation != asked.decision_annotation
    decision = verify(asked._replace(decision_annotation=annotation), ALICE, place)
    assert isinstance(decision, Deny)
    assert decision.reasons[0].text.encode()


def sent_to_brought_nodes(**more):
    """A pod as a replica made it that has found Karpenter, and the world of one that has not yet."""
    nodes = [node("n0", labels={"karpenter.sh/nodepool": "cloud"})]
    knowing = world(policy(**more), nodes=nodes)
    knowing.autoscalers = frozenset({Autoscaler.KARPENTER})
    return passed(pod(1), knowing), knowing, live(policy(**more), nodes[0])


def live(rules, node_):
    """The world of a cluster in which no autoscaler was found yet."""
    made = World(rules, is_live=True)
    made.set_node(node_)
    made.set_namespace(NamespaceFacts(Namespace("team-a")))
    return made


def test_a_pod_that_prefers_nodes_is_intact_where_an_autoscaler_was_found_and_retried_where_not_yet():
    made, knowing, late = sent_to_brought_nodes()
    assert isinstance(verify(made, ALICE, knowing), Admit)
    decision = verify(made, ALICE, late)
    assert isinstance(decision, Retry)
    assert "what is known of autoscalers changed" in decision.reason.text


def test_a_pod_that_prefers_nodes_is_altered_where_policy_says_that_none_grows():
    fixed = (Pool(PoolName("a"), is_autoscaled=False),)
    made, _, _ = sent_to_brought_nodes()
    late = live(policy(pools=fixed), node("n0"))
    late.autoscalers = frozenset(Autoscaler)
    decision = verify(made, ALICE, late)
    assert isinstance(decision, Deny)
    assert {reason.code for reason in decision.reasons} == {Code.MUTATION_ALTERED}
