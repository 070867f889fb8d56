"""Limits: every one that is broken, with its numbers."""

from tests.core.support.make import (
    ALICE,
    gpus,
    pod,
    policy,
    resident,
    team,
    world,
)
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.model.reason import Code


def test_every_limit_that_is_broken_is_reported():
    crowded = team(limit_=4, per_pod=gpus(2), per_user=gpus(3))
    place = world(policy(crowded), residents=[resident(2, user=ALICE.username)])
    refused = admit(pod(3), ALICE, place)
    assert codes(refused) == [Code.POD_LIMIT_EXCEEDED, Code.TEAM_LIMIT_EXCEEDED, Code.USER_LIMIT_EXCEEDED]
    assert [reason.text.rpartition("; ")[2] for reason in refused.reasons] == [
        "split the work over more pods, or ask for at most 2 per pod",
        "a request of at most 1 would pass now",
        "a request of at most 1 would pass now",
    ]


def test_a_request_that_exactly_fills_the_limit_passes():
    assert admitted(admit(pod(4), ALICE, world(policy(team(limit_=4)))))
