"""Reviews of pods that wait in line: the patch, the check of the final pod, and that nothing is charged."""

import base64
import json

import pytest

from tests import builders
from tests.blackbox.in_process import ask
from tests.core.support import make
from webhook.core.admission.queueing import as_requested
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, Outcome
from webhook.core.model.policy import Enforcement, OnLimit, QueueRules
from webhook.kube.admission.pod_patch import apply
from webhook.kube.objects import keys
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

NOW = 1_800_000_000


class Site:
    """The webhook of a team whose pods wait in line, which holds some of its four GPUs."""

    def __init__(self, held=4, **more):
        residents = [make.resident(held, uid="held", node="n0")] if held else []
        team = make.team(guaranteed=4, limit_=4, on_limit=OnLimit.QUEUE)
        self.world = make.world(make.policy(team, queue=QueueRules(depth=2), **more), residents=residents)
        self.now = NOW
        self.reviewer = AdmissionReviewer(
            self.world,
            MemoryLedger(self.world, lambda: 0.0),
            now_text=lambda: "2026-01-01T00:00:00Z",
            unix_time=lambda: self.now,
        )

    @property
    def charged(self):
        return self.world.usage("team-a").total

    def ask(self, method, pod, *, operation="CREATE", **more):
        body = builders.review(pod, namespace="team-a", username="bob", operation=operation, **more)
        answer = ask(self.reviewer, method, body)
        return json.loads(answer.body)["response"], answer.record

    def create(self, pod, **more):
        """Send a pod through both webhooks; returns it as it would be stored, and the second response."""
        response, _ = self.ask("mutate", pod, **more)
        assert response["allowed"], response
        stored = apply(pod, json.loads(base64.b64decode(response["patch"]))) if "patch" in response else pod
        return stored, self.ask("validate", stored, **more)


def asking(gpus=1, *, gates=(), uid="u", **more):
    made = builders.pod("p", namespace="team-a", gpus=gpus, uid=uid, **more)
    if gates:
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return made


def gates(pod):
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def test_a_pod_over_the_limit_waits_uncharged_with_a_warning():
    site = Site()
    stored, (response, record) = site.create(asking())
    assert gates(stored) == [keys.QUEUE_GATE]
    assert (response["allowed"], record.outcome, site.charged) == (True, Outcome.QUEUE, make.gpus(4))
    assert "warnings" in site.ask("mutate", asking(uid="v"))[0]
    assert stored["metadata"]["annotations"][keys.WAITING].endswith("1st in the queue")
    assert site.world.waiting.count("team-a") == 1


def test_a_dry_run_stands_in_no_line():
    site = Site()
    for _ in range(3):
        _, (response, record) = site.create(asking(), dry_run=True)
        assert (response["allowed"], record.outcome) == (True, Outcome.QUEUE)
    assert (site.world.waiting.count("team-a"), site.charged) == (0, make.gpus(4))


def test_a_repeated_request_is_answered_alike_also_at_the_full_depth():
    site = Site()
    stored, _ = site.create(asking())
    other, _ = site.create(asking(uid="v"))
    for pod in (stored, other):
        assert site.ask("validate", pod)[0]["allowed"]
    refused, record = site.ask("mutate", asking(uid="w"))
    assert (refused["allowed"], record.code) == (False, "QueueFull")


def test_without_a_cluster_a_pod_waits_until_its_deletion_is_reviewed():
    site = Site()
    for uid in "uv":
        stored, _ = site.create(asking(uid=uid))
    site.now += 3600
    assert site.ask("mutate", asking(uid="w"))[1].code == "QueueFull"
    waiting = site.world.waiting.get("v")
    assert (waiting.team, waiting.user, waiting.created) == ("team-a", "bob", NOW)
    assert waiting.text.endswith("2nd in the queue")
    assert waiting.pod == as_requested(waiting.pod, None), "nothing of its decision is left"
    site.ask("validate", None, operation="DELETE", old=stored)
    assert site.ask("mutate", asking(uid="w"))[0]["allowed"]


def test_without_a_cluster_the_members_of_a_gang_are_counted():
    site = Site()
    labels, size = {"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "2"}
    texts = [
        site.create(asking(uid=uid, labels=labels, annotations=size))[0]["metadata"]["annotations"][keys.WAITING]
        for uid in "uv"
    ]
    assert [text.partition(";")[0] for text in texts] == [
        "waits: 1 of 2 members of gang g have come",
        "waits: 2 of 2 members of gang g have come",
    ]


def test_the_users_own_gate_on_a_pod_that_fits_is_removed_and_the_pod_is_charged():
    site = Site(held=0)
    stored, (response, record) = site.create(asking(gates=(keys.QUEUE_GATE,)))
    assert gates(stored) == []
    assert (response["allowed"], record.outcome, site.charged) == (True, Outcome.ADMIT, make.gpus(1))


def test_a_decision_that_its_user_wrote_puts_no_pod_in_line():
    site = Site()
    stored, _ = site.create(asking())
    site.world.set_policy(make.policy(make.team(guaranteed=4, limit_=4, on_limit=OnLimit.REJECT)))
    assert site.ask("mutate", stored)[1].code == "TeamLimitExceeded"
    assert site.ask("validate", stored)[1].code == "MutationAltered"


def test_gates_of_others_stay_and_the_pod_is_not_charged():
    site = Site(held=0)
    stored, (response, record) = site.create(asking(gates=("kueue.x-k8s.io/admission",)))
    assert gates(stored) == ["kueue.x-k8s.io/admission", keys.QUEUE_GATE]
    assert (response["allowed"], record.outcome, site.charged) == (True, Outcome.QUEUE, 0)
    assert "affinity" not in stored["spec"]


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ((keys.QUEUE_GATE,), (), False),
        ((keys.QUEUE_GATE, "example.com/x"), ("example.com/x",), False),
        ((keys.QUEUE_GATE, "example.com/x"), (keys.QUEUE_GATE,), True),
        (("example.com/x",), (), True),
    ],
    ids=["ours", "ours beside another", "another beside ours", "another"],
)
def test_an_update_may_not_remove_our_gate(old, new, want):
    response, _ = Site().ask("validate", asking(gates=new), operation="UPDATE", old=asking(gates=old))
    assert response["allowed"] is want


def test_an_update_may_not_change_what_a_pod_in_line_asks_for():
    stored, _ = Site().create(asking(2))

    def answer(new):
        return Site().ask("validate", new, operation="UPDATE", old=stored)[0]

    larger = json.loads(json.dumps(stored))
    larger["spec"]["containers"][0]["resources"] = asking(3)["spec"]["containers"][0]["resources"]
    response = answer(larger)
    want = "the pod is queued for nvidia.com/gpu 2, and what it asks for may not change"
    assert (response["allowed"], want in response["status"]["message"]) == (False, True)
    narrowed = json.loads(json.dumps(stored))
    narrowed["spec"]["nodeSelector"] = {"zone": "a"}
    assert answer(narrowed)["allowed"]
    del larger["spec"]["schedulingGates"], stored["spec"]["schedulingGates"]
    assert answer(larger)["allowed"], "of other pods kube-apiserver refuses it"


def test_a_gate_without_the_mutating_step_is_to_be_tried_again():
    response, record = Site().ask("validate", asking(gates=(keys.QUEUE_GATE,)))
    assert (response["allowed"], response["status"]["code"], record.outcome) == (False, 429, Outcome.RETRY)


def test_a_pod_of_another_scheduler_may_not_have_the_gate():
    site = Site(held=0)
    response, record = site.ask("validate", asking(gates=(keys.QUEUE_GATE,), schedulerName="mine"))
    assert (response["allowed"], record.code, site.charged) == (False, "InvalidRequest", 0)


def test_while_policy_is_not_enforced_a_gate_is_not_charged():
    site = Site(held=0, enforce=Enforcement.SHADOW)
    assert site.ask("validate", asking(gates=(keys.QUEUE_GATE,)))[0]["allowed"]
    assert site.charged == 0, "its charge would stay for as long as the gate does"
    assert site.ask("validate", asking(uid="v"))[0]["allowed"]
    assert site.charged == make.gpus(1)


def test_a_charged_pod_that_waits_for_its_gate_to_go_is_counted_once():
    site = Site(held=0)
    charge = Charge("team-a", Tier.GUARANTEED, make.gpus(1))
    site.world.assume(make.flight(make.pod(1, uid="u"), charge, "n1"))
    site.world.assume(make.flight(make.pod(1, uid="u"), charge, "n1"))
    assert site.charged == make.gpus(1)
