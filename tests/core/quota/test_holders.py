"""The holders named in a refusal: the largest under the exceeded limit, found without a scan of all holders."""

import random
import re

from tests.core.support.make import ALICE, JOB_CONTROLLER, gpus, node, pod, policy, resident, team, world
from tests.kept import kept
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import GpuModel
from webhook.core.model.decision import Deny
from webhook.core.model.pod import Handling, Owner
from webhook.core.model.policy import Share
from webhook.core.model.reasons import Code
from webhook.core.quota import shares
from webhook.core.quota.shares import Holders

A100, T4 = GpuModel("A100"), GpuModel("T4")


def refusal_text(place, asked, code, requester=ALICE):
    decision = admit(asked, requester, place)
    assert isinstance(decision, Deny)
    return next(reason.text for reason in decision.reasons if reason.code is code)


def named(text):
    return re.findall(r"(team-a/\S+)", text.partition("largest holders: ")[2])


class TestHoldersOfTheLimitThatBroke:
    def test_a_users_own_pods_under_the_limit_per_user(self):
        theirs = [resident(5, uid=f"bob-{i}", user="bob") for i in range(3)]
        mine = [resident(1, uid="mine", user=ALICE.username), resident(2, uid="also-mine", user=ALICE.username)]
        place = world(policy(team(per_user=gpus(3))), residents=theirs + mine)
        text = refusal_text(place, pod(1), Code.USER_LIMIT_EXCEEDED)
        assert named(text) == ["team-a/Pod/also-mine", "team-a/Pod/mine"]
        assert ALICE.username not in text.partition("largest holders")[2]

    def test_pods_on_the_model_and_those_that_may_still_end_there(self):
        limited = team(models={A100: Share(0, gpus(4)), T4: Share(0, gpus(40))})
        nodes = [node("a", model=A100, model_label="m", labels={"m": A100}), node("t", model=T4, labels={"m": T4})]
        pods = [resident(9, uid="elsewhere", node="t"), resident(1, uid="open"), resident(3, uid="there", node="a")]
        place = world(policy(limited), nodes=nodes, residents=pods)
        text = refusal_text(place, pod(1, node_name="a", handling=Handling.NODE_NAME), Code.MODEL_LIMIT_EXCEEDED)
        assert named(text) == ["team-a/Pod/there", "team-a/Pod/open"]

    def test_guaranteed_pods_under_the_guaranteed_share(self):
        pods = [resident(8, uid="borrows", tier="preemptible"), resident(2, uid="mine")]
        place = world(policy(team(guaranteed=2)), residents=pods)
        text = refusal_text(place, pod(1, tier_label="guaranteed"), Code.GUARANTEED_SHARE_USED)
        assert named(text) == ["team-a/Pod/mine"]

    def test_all_of_the_team_under_the_teams_limit(self):
        pods = [resident(n, uid=f"p{n}", user=f"u{n}") for n in (1, 2, 3, 4)]
        text = refusal_text(world(policy(team(limit_=10)), residents=pods), pod(1), Code.TEAM_LIMIT_EXCEEDED)
        assert named(text) == ["team-a/Pod/p4", "team-a/Pod/p3", "team-a/Pod/p2"]

    def test_none_where_one_pod_requests_too_much(self):
        place = world(policy(team(per_pod=gpus(1))), residents=[resident(3)])
        assert "largest holders" not in refusal_text(place, pod(2), Code.POD_LIMIT_EXCEEDED)


class TestHolderDetails:
    NOW = 1_000_000

    def text(self, *pods, now=NOW):
        place = world(policy(team(limit_=sum(p.demand.gpus for p in pods) // gpus(1))), residents=pods)
        place.tick(now)
        return refusal_text(place, pod(1), Code.TEAM_LIMIT_EXCEEDED).partition("largest holders: ")[2].partition(";")[0]

    def test_the_person_and_the_age(self):
        anna = resident(2, uid="p", node="n0", user="anna", created=self.NOW - 3 * 3600)
        assert self.text(anna) == "team-a/Pod/p 2 (anna, 3h)"

    def test_no_service_account_of_a_controller(self):
        assert self.text(resident(2, uid="p", node="n0", user="system:serviceaccounts:team-a")) == "team-a/Pod/p 2"

    def test_waiting_where_none_of_its_pods_is_on_a_node(self):
        assert self.text(resident(2, uid="p", created=self.NOW - 7200)) == "team-a/Pod/p 2 (2h, waiting)"

    def test_no_waiting_before_kube_scheduler_has_seen_the_pod(self):
        assert self.text(resident(2, uid="p", created=self.NOW - 59)) == "team-a/Pod/p 2"

    def test_no_waiting_while_one_of_its_pods_runs(self):
        job = Owner("Job", "train")
        pods = resident(1, node="n0", owner=job), resident(1, owner=job)
        assert self.text(*pods) == "team-a/Job/train 2"

    def test_the_age_of_a_controller_is_that_of_its_first_pod(self):
        job = Owner("Job", "train")
        pods = (resident(1, node="n0", owner=job, created=self.NOW - hours * 3600) for hours in (1, 50, 2))
        assert self.text(*pods) == "team-a/Job/train 3 (2d)"

    def test_no_age_where_the_time_is_unknown(self):
        assert self.text(resident(2, uid="p", node="n0", created=5), now=0) == "team-a/Pod/p 2"

    def test_a_long_name_of_a_person_is_cut(self):
        assert "x" * 62 + "…" in self.text(resident(2, uid="p", node="n0", user="x" * 253))


def test_the_text_stays_the_same_for_minutes():
    pods = [resident(1, uid=f"p{i}", node="n0", user="anna", created=1_000_000 + 7 * i) for i in range(3)]
    place = world(policy(team(limit_=3)), residents=pods)
    texts = set()
    for now in range(1_001_260, 1_001_800, 30):
        place.tick(now)
        texts.add(refusal_text(place, pod(1), Code.TEAM_LIMIT_EXCEEDED))
    assert len(texts) == 1


def test_naming_the_largest_of_many_holders_reads_few(monkeypatch):
    looks = 0

    def counted(heap):
        nonlocal looks
        looks += 1
        return real(heap)

    real = shares.heappop
    held, rng = Holders(), random.Random(1)
    for i in range(10_000):
        held.change(f"p{i}", rng.randrange(1, 9))
    held.largest(3)
    size = kept(held)
    monkeypatch.setattr(shares, "heappop", counted)
    for i in range(1_000):  # refused repeatedly, while pods are created and deleted
        held.change(f"new-{i}", 9)
        held.change(f"new-{i - 1}", -9 if i else 0)
        held.largest(3)
    assert looks < 6_000
    assert kept(held) < 2 * size


def test_refusals_of_a_controller_repeat_the_same_text():
    place = world(policy(team(limit_=1)), residents=[resident(1)])
    texts = {refusal_text(place, pod(1), Code.TEAM_LIMIT_EXCEEDED, requester) for requester in (ALICE, JOB_CONTROLLER)}
    assert len(texts) == 1
