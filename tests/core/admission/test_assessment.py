"""The facts that a decision is made from, resolved once."""

import pytest

from tests.core.support import claims
from tests.core.support.make import ALICE, demand, gpus, pod, policy, team, world
from tests.core.support.outcomes import codes
from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import assess
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit
from webhook.core.model.pod import Handling
from webhook.core.model.reasons import Code


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod(1, handling=Handling.DAEMON_SET, decision_annotation="{}"), id="an externally placed pod"),
        pytest.param(pod(demand=demand(0), decision_annotation="{}"), id="a pod without GPUs"),
    ],
)
def test_a_forged_decision_is_refused_at_once(asked):
    assert codes(admit(asked, ALICE, world())) == [Code.PROTECTED_KEY_CHANGED]


def test_claims_are_resolved_once_for_a_decision(monkeypatch):
    place, calls = world(), []
    found = place.with_claims
    monkeypatch.setattr(place, "with_claims", lambda asked: calls.append(asked) or found(asked))
    marked = pod(2, slices=("nvidia.com/mig-1g.5gb",), decision_annotation="{}", team_label="team-a")
    assert isinstance(admit(marked, ALICE, place), Admit)
    assert len(calls) == 1


def test_a_pod_on_slices_is_held_against_the_limits_with_what_it_counts_there():
    rules = policy(team(per_pod=gpus(1)))
    assessed = assess(pod(2), ALICE, world(rules))
    smaller = assessed.with_demand(demand(1), rules)
    assert ([reason.code for reason in assessed.broken], smaller.broken) == ([Code.POD_LIMIT_EXCEEDED], ())


def test_a_pod_that_shares_borrowed_devices_borrows_too():
    """It counts 0, which every share has room for; as a guaranteed pod it would keep the devices from their owner."""
    place = claims.with_devices(8, "n1", "n2")
    place.set_claim(claims.SHARED, claims.spec(2))
    place.set_pod(claims.resident("a", claims.SHARING, tier="preemptible", node="n1"))
    joining = pod(demand=claims.bare(), claims=(claims.SHARING,))
    admitted = admit(joining, ALICE, place)
    assert isinstance(admitted, Admit)
    assert (admitted.charge.gpus, admitted.charge.tier) == (0, Tier.PREEMPTIBLE)
    assert admitted.reason.text == "shares ResourceClaim shared, whose GPUs are borrowed"
    assert admitted.node_choice.nodes == ("n1",)
    assert codes(admit(joining._replace(tier_label="guaranteed"), ALICE, place)) == [Code.GUARANTEED_SHARE_USED]
    place.set_pod(claims.resident("a", claims.SHARING, tier="guaranteed", node="n1"))
    assert admit(joining, ALICE, place).charge.tier is Tier.GUARANTEED
