"""The text of a refusal: the same from both webhooks and for every retry, so that Events count them."""

import json

from tests import builders
from tests.blackbox.in_process import ask
from tests.core.support import make
from webhook.core.model.amounts import TeamName, User
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.pod import Owner
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

NOW = 1_800_000_000
JOB = Owner("Job", "train")


class Site:
    """The webhook of a team of four GPUs, with a clock that a test sets."""

    def __init__(self, *residents):
        self.now = NOW
        self.world = make.world(make.policy(make.team(guaranteed=2, limit_=4)), residents=residents)
        ledger = MemoryLedger(self.world, lambda: 0.0)
        self.reviewer = AdmissionReviewer(
            self.world, ledger, now_text=lambda: "2026-01-01T00:00:00Z", unix_time=lambda: self.now
        )

    def refused(self, method, gpus=1):
        pod = builders.pod("p", namespace="team-a", gpus=gpus, uid="u")
        body = builders.review(pod, namespace="team-a", username="bob")
        answer = ask(self.reviewer, method, body)
        response = json.loads(answer.body)["response"]
        assert not response["allowed"]
        assert answer.record.message == response["status"]["message"]
        return response["status"]["message"]


def running(**more):
    return make.resident(4, uid="held", user="anna", owner=JOB, created=NOW - 3 * 3600, **more)


def test_both_webhooks_give_the_same_text():
    site = Site(running(node="n0"))
    texts = {site.refused(method) for method in ("mutate", "validate")}
    assert texts == {
        "exceeded quota: team team-a: requested 1, limit 4, used 4, reserved 0; largest holders: "
        "team-a/Job/train 4 (anna, 3h); no request would pass now: wait until a holder ends, or delete one "
        "(TeamLimitExceeded)"
    }


def test_retries_give_the_same_text_after_pods_are_seen_and_bound():
    site, texts = Site(), set()
    charge = Charge(TeamName("team-a"), Tier.GUARANTEED, make.gpus(4), user=User("anna"))
    site.world.assume(make.flight(make.pod(4, uid="held", owner=JOB), charge, None))
    assert "used 0, reserved 4; largest holders: team-a/Job/train 4 (anna)" in site.refused("mutate")
    for node in (None, "n0"):
        site.now += 1
        site.world.set_pod(make.resident(4, uid="held", user="anna", owner=JOB, created=NOW, node=node))
        texts.add(site.refused("mutate"))
    for _ in range(9):
        site.now += 60
        texts.add(site.refused("validate"))
    assert len(texts) == 1


def test_names_that_a_tenant_chose_are_escaped():
    evil = "anna\n\x1b[31mFairgate is down"
    site = Site(make.resident(4, uid="held", user=evil, owner=Owner("Job", "x\r\x9b2J"), node="n0"))
    message = site.refused("mutate")
    assert message.isprintable()
    assert r"team-a/Job/x\r\x9b2J 4 (anna\n\x1b[31mFairgate is down)" in message


def test_what_never_fits_is_refused_before_it_is_charged():
    site = Site()
    site.world.set_policy(make.policy(make.team(guaranteed=2, limit_=40)))
    assert site.refused("mutate", 16).endswith("(NeverFits)")
    assert site.world.usage("team-a").total == 0
