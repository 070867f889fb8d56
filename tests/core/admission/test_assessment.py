"""Whose a pod is, how long it may stay after its deletion, and what only Fairgate says of it."""

import pytest

from tests.core.admission.test_admission import ROBOTS, admitted, codes, robot
from tests.core.support.make import ALICE, JOB, JOB_CONTROLLER, demand, gpus, pod, policy, team, world
from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import assess
from webhook.core.admission.pod_rules import NO_GPU
from webhook.core.admission.verification import verify
from webhook.core.model.decision import Admit
from webhook.core.model.names import Namespace
from webhook.core.model.pod import Handling, NamespaceFacts
from webhook.core.model.policy import Defaults, UnknownUser
from webhook.core.model.reason import Code


def test_a_service_account_counts_as_the_owner_of_its_own_namespace():
    place = world(policy(team(per_user=gpus(5), namespaces=("team-a", "team-a2"))))
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {}, {"owner": "ann"}))
    place.set_namespace(NamespaceFacts(Namespace("team-a2"), {}, {"owner": "bob"}))
    assert admitted(admit(pod(1), robot("one", "team-a2"), place)).charge.user == "bob"


def test_pods_whose_user_nothing_names_may_count_by_namespace():
    by_namespace = policy(team(per_user=gpus(5)), defaults=Defaults(unknown_user=UnknownUser.NAMESPACE))
    decision = admitted(admit(pod(1, owner=JOB), JOB_CONTROLLER, world(by_namespace)))
    assert (decision.charge.user, decision.warnings) == (ROBOTS, ())


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
    def test_whoever_places_the_pod(self, handling):
        assert codes(admit(pod(1, grace_seconds=601, handling=handling), ALICE, world())) == [
            Code.GRACE_PERIOD_TOO_LONG
        ]

    def test_policy_says_how_long(self):
        patient = policy(defaults=Defaults(maximum_grace_seconds=3600))
        assert admitted(admit(pod(1, grace_seconds=3600), ALICE, world(patient)))
        assert codes(admit(pod(1, grace_seconds=3601), ALICE, world(patient))) == [Code.GRACE_PERIOD_TOO_LONG]

    def test_without_gpus_any_will_do(self):
        assert admit(pod(0, grace_seconds=31_536_000), ALICE, world()) is NO_GPU


@pytest.mark.parametrize(
    ("step", "forged"),
    [
        pytest.param(admit, {"team_label": "team-a"}, id="team"),
        pytest.param(admit, {"tier_label": "guaranteed"}, id="tier"),
        pytest.param(verify, {"mark": "{}"}, id="decision"),
        pytest.param(verify, {"team_label": "team-a"}, id="team, added by another webhook"),
    ],
)
def test_a_pod_without_gpus_carries_nothing_of_ours(step, forged):
    """One with claims, or with a resource that counts nothing, comes to us all the same."""
    assert codes(step(pod(0, **forged), ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]
    place = world()
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {"fairgate.dev/exempt": "true"}))
    assert step(pod(0, **forged), ALICE, place) is NO_GPU


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod(1, handling=Handling.DAEMON_SET, mark="{}"), id="a pod that others place"),
        pytest.param(pod(demand=demand(0), mark="{}"), id="a pod without GPUs"),
    ],
)
def test_a_forged_decision_is_refused_at_once(asked):
    assert codes(admit(asked, ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]


def test_claims_are_resolved_once_for_a_decision(monkeypatch):
    place, calls = world(), []
    found = place.with_claims
    monkeypatch.setattr(place, "with_claims", lambda asked: calls.append(asked) or found(asked))
    marked = pod(2, slices=("nvidia.com/mig-1g.5gb",), mark="{}", team_label="team-a")
    assert isinstance(admit(marked, ALICE, place), Admit)
    assert len(calls) == 1


def test_a_pod_on_slices_is_held_against_the_limits_with_what_it_counts_there():
    rules = policy(team(per_pod=gpus(1)))
    assessed = assess(pod(2), ALICE, world(rules))
    smaller = assessed.with_demand(demand(1), rules)
    assert ([reason.code for reason in assessed.broken], smaller.broken) == ([Code.POD_LIMIT_EXCEEDED], ())
