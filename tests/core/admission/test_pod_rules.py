"""What a pod must not have, and room that is held for others."""

import pytest

from tests.core.support import make
from tests.core.support.make import ALICE, node, pod, policy, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import NO_GPU
from webhook.core.admission.verification import verify
from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import HELD, Constraints, Effect, Taint, Toleration
from webhook.core.model.decision import Admit, Deny, NotApplicable
from webhook.core.model.pod import Handling, NamespaceFacts
from webhook.core.model.policy import Defaults
from webhook.core.model.reasons import Code


@pytest.mark.parametrize("handling", [Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET])
@pytest.mark.parametrize(
    "forged", [{"team_label": "team-b"}, {"decision_annotation": "{}"}, {}], ids=["a team", "a decision", "a tier"]
)
def test_externally_placed_pods_must_not_have_keys_that_only_fairgate_writes(handling, forged):
    """The evictor trusts labels: a pod of another scheduler could have others evicted for itself."""
    labelled = pod(1, handling=handling, tier_label="guaranteed", **forged)
    assert codes(verify(labelled, ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]
    for kept in ({}, {"tier_label": "preemptible"}):
        assert isinstance(admit(pod(1, handling=handling, **kept), ALICE, world()), NotApplicable)


def test_held_room_cannot_be_taken_by_bypassing_the_taint():
    held = Taint("fairgate.dev/held", Effect.NO_SCHEDULE, "x")
    place = world(nodes=[node("n0", taints=(held,)), node("n1")])

    def asked(name):
        return admit(pod(1, handling=Handling.NODE_NAME, node_name=name), ALICE, place)

    assert codes(asked("n0")) == [Code.HELD_ROOM]
    assert isinstance(asked("n1"), NotApplicable)
    everything = Constraints(tolerations=(Toleration(exists=True, effect=Effect.NO_SCHEDULE),))
    elsewhere = pod(1, handling=Handling.FOREIGN_SCHEDULER, constraints=everything)
    assert codes(admit(elsewhere, ALICE, place)) == [Code.HELD_ROOM], "its scheduler may not support nominations"
    assert admitted(admit(pod(1, constraints=everything), ALICE, place)).node_choice.nodes == ("n1",)


class TestGracePeriod:
    def test_a_long_one_is_refused_with_everything_else_that_is_wrong(self):
        place = world(policy(team(limit_=2)))
        refused = admit(pod(3, grace_seconds=31_536_000), ALICE, place)
        assert codes(refused) == [Code.TEAM_LIMIT_EXCEEDED, Code.GRACE_PERIOD_TOO_LONG]
        assert (
            "terminationGracePeriodSeconds is 31536000, and pods with GPUs may have at most 600"
            in refused.reasons[1].text
        )

    @pytest.mark.parametrize("handling", [Handling.NODE_NAME, Handling.FOREIGN_SCHEDULER, Handling.DAEMON_SET])
    def test_for_every_way_of_placement(self, handling):
        assert codes(admit(pod(1, grace_seconds=601, handling=handling), ALICE, world())) == [
            Code.GRACE_PERIOD_TOO_LONG
        ]

    def test_policy_says_how_long(self):
        patient = policy(defaults=Defaults(maximum_grace_seconds=3600))
        assert admitted(admit(pod(1, grace_seconds=3600), ALICE, world(patient)))
        assert codes(admit(pod(1, grace_seconds=3601), ALICE, world(patient))) == [Code.GRACE_PERIOD_TOO_LONG]

    def test_a_pod_without_gpus_may_have_any(self):
        assert admit(pod(0, grace_seconds=31_536_000), ALICE, world()) is NO_GPU


@pytest.mark.parametrize(
    ("step", "forged"),
    [
        pytest.param(admit, {"team_label": "team-a"}, id="team"),
        pytest.param(admit, {"tier_label": "guaranteed"}, id="tier"),
        pytest.param(verify, {"decision_annotation": "{}"}, id="decision"),
        pytest.param(verify, {"team_label": "team-a"}, id="team, added by another webhook"),
    ],
)
def test_a_pod_without_gpus_must_not_have_keys_of_fairgate(step, forged):
    """A pod with claims, or with a resource that counts nothing, is reviewed nevertheless."""
    assert codes(step(pod(0, **forged), ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]
    place = world()
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {"fairgate.dev/exempt": "true"}))
    assert step(pod(0, **forged), ALICE, place) is NO_GPU


TAINT = Taint(HELD, Effect.NO_SCHEDULE, "h1")
EVERYTHING = Constraints(tolerations=(Toleration(exists=True),))
OURS = Constraints(tolerations=(Toleration(HELD, value="h1", effect=Effect.NO_SCHEDULE),))


def held_world():
    return make.world(nodes=[make.node("n0", taints=(TAINT,)), make.node("n1")])


@pytest.mark.parametrize("constraints", [Constraints(), EVERYTHING], ids=["nothing", "everything"])
def test_no_pod_is_sent_to_a_held_node(constraints):
    decision = admit(make.pod(constraints=constraints), make.ALICE, held_world())
    assert isinstance(decision, Admit)
    assert decision.node_choice.nodes == ("n1",)


@pytest.mark.parametrize("handling", [Handling.MANAGED, Handling.NODE_NAME])
def test_a_pod_cannot_tolerate_a_hold_by_itself(handling):
    decision = admit(make.pod(constraints=OURS, handling=handling), make.ALICE, held_world())
    assert isinstance(decision, Deny)
    assert [reason.code for reason in decision.reasons] == [Code.HELD_ROOM]


def test_the_beneficiary_may_use_held_room():
    world = held_world()
    assert world.fleet.matching(OURS) == world.fleet.bit("n0") | world.fleet.bit("n1")
