"""The reviewer while policy is not enforced: every pod is admitted and counted, and the record has the decision."""

import base64
import json

import pytest

from tests import builders
from tests.blackbox.in_process import ask
from tests.core.support import make
from webhook.core.model.decision import Retry
from webhook.core.model.policy import Enforcement
from webhook.core.model.reasons import Code, Reason
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.server.review.reviewer import AdmissionReviewer
from webhook.server.review.verdicts import MemoryLedger

NOW = "2026-01-01T00:00:00Z"


def reviewer(mode, *, ledger=None):
    world = make.world(make.policy(make.team(guaranteed=4, limit_=6), enforce=mode))
    return AdmissionReviewer(
        world, ledger or MemoryLedger(world, lambda: 0.0), now_text=lambda: NOW, shadow_labels=ShadowLabels(world)
    )


def asked(name, gpus, **more):
    pod = builders.pod(name, namespace="team-a", gpus=gpus, uid=f"uid-{name}")
    return builders.review(pod, namespace="team-a", **more)


def validated(reviewer_, name, gpus, **more):
    answer = ask(reviewer_, "validate", asked(name, gpus, **more))
    return json.loads(answer.body)["response"], answer.record


@pytest.mark.parametrize("mode", [Enforcement.OFF, Enforcement.SHADOW, Enforcement.WARN])
def test_the_mutating_webhook_changes_nothing(mode):
    answer = reviewer(mode).mutate(asked("p", 99))
    response = json.loads(answer.body)["response"]
    assert (response["allowed"], "patch" in response, "warnings" in response) == (True, False, False)
    assert (answer.record.outcome, answer.record.would, answer.record.enforce) == ("skip", "", mode)


def test_shadow_mode_answers_nothing_and_records_the_would_be_decision():
    place = reviewer(Enforcement.SHADOW)
    found = [validated(place, name, gpus) for name, gpus in (("a", 3), ("b", 3), ("c", 1), ("d", 1))]
    assert all(response.keys() == {"uid", "allowed", "auditAnnotations"} for response, _ in found)
    assert all(response["allowed"] for response, _ in found)
    recorded = [(record.would, record.outcome, record.code, record.tier) for _, record in found]
    assert recorded == [
        ("admit", "skip", "WithinShare", "guaranteed"),
        ("admit", "skip", "Borrows", "preemptible"),
        ("deny", "skip", "TeamLimitExceeded", ""),
        ("deny", "skip", "TeamLimitExceeded", ""),
    ]
    assert "limit 6, used 7" in found[3][1].message, "what would be refused is there, and counts"
    book = place.world.usage("team-a")
    assert (book.total, book.guaranteed) == (make.gpus(8), make.gpus(3))


def test_warn_mode_warns_the_user():
    place = reviewer(Enforcement.WARN)
    response, record = validated(place, "a", 3)
    assert response["warnings"] == [
        "Fairgate would make this pod guaranteed (WithinShare): inside team team-a's guaranteed share"
    ]
    response, record = validated(place, "b", 9)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning == (
        "Fairgate would refuse this pod (TeamLimitExceeded): team team-a: requested 9, limit 6, used 3, reserved 0; "
        "largest holders: team-a/Pod/a 3 (alice@example.com, waiting); a request of at most 3 would pass now"
    )
    assert (record.outcome, record.would, record.code) == ("warn", "deny", "TeamLimitExceeded")


def test_off_mode_decides_nothing():
    place = reviewer(Enforcement.OFF)
    response, record = validated(place, "a", 99)
    assert response["allowed"]
    assert (record.would, record.code) == ("", "NotEnforced")


def test_a_dry_run_is_judged_and_not_counted():
    place = reviewer(Enforcement.SHADOW)
    _, record = validated(place, "a", 9, dry_run=True)
    assert (record.would, place.world.usage("team-a").total) == ("deny", 0)


@pytest.mark.parametrize("gpus", [-1, "two", 99])
def test_off_mode_checks_no_amounts(gpus):
    response, record = validated(reviewer(Enforcement.OFF), "a", gpus)
    assert (response["allowed"], record.would, record.code) == (True, "", "NotEnforced")


def test_an_unreadable_pod_is_allowed():
    response, record = validated(reviewer(Enforcement.SHADOW), "a", -1)
    assert response["allowed"]
    assert (record.would, record.code) == ("deny", "InvalidRequest")


class Broken:
    """A ledger that cannot be written."""

    is_watched = True

    async def commit(self, judge, **_how):
        judge()
        return Retry(Reason(Code.LEDGER_UNAVAILABLE, "the API server is away"))

    def release(self, review):
        """Nothing is kept."""


def test_a_failing_ledger_delays_no_request():
    response, record = validated(reviewer(Enforcement.SHADOW, ledger=Broken()), "a", 3)
    assert response["allowed"]
    assert record.would == "admit"


@pytest.mark.parametrize(
    ("mode", "want"), [(Enforcement.OFF, 0), (Enforcement.SHADOW, 0), (Enforcement.WARN, 1), (Enforcement.ENFORCE, 1)]
)
def test_workloads_get_warnings_only_in_modes_that_warn(mode, want):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team-a"},
        "spec": {"parallelism": 9, "completions": 9, "template": {"spec": builders.pod("p", gpus=1)["spec"]}},
    }
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "team-a", "object": job},
    }
    answer = reviewer(mode).workloads(json.dumps(body).encode())
    response = json.loads(answer.body)["response"]
    assert response["allowed"]
    assert len(response.get("warnings", ())) == want


def test_the_patch_is_back_when_policy_is_enforced_again():
    answer = reviewer(Enforcement.ENFORCE).mutate(asked("p", 3))
    patch = json.loads(base64.b64decode(json.loads(answer.body)["response"]["patch"]))
    assert any("guaranteed" in str(change.get("value")) for change in patch)
