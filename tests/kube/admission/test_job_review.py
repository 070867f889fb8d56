"""Reviews of Jobs and the rule that they get; tests/server/review/test_job_reviews.py has the answers."""

import pytest

from tests.builders import reviewed
from webhook.kube.admission.job_review import (
    MOST_RULES,
    RULE,
    FailurePolicyChange,
    decode_job,
    failure_policy_change,
    gets_rule,
)
from webhook.kube.objects import keys

EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
ABOUT_EVICTIONS = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
NOTHING = FailurePolicyChange()


def job(rules=None, *, restart="Never", name="train", **metadata):
    spec = {"template": {"spec": {"restartPolicy": restart} if restart else {}}}
    if rules is not None:
        spec["podFailurePolicy"] = {"rules": rules}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def review(found, operation="CREATE", **more):
    return decode_job(reviewed(**{"uid": "r1", "operation": operation, "namespace": "team-a", "object": found} | more))


def change(found, operation="CREATE", **more):
    return failure_policy_change(review(found, operation, **more))


def test_a_review_has_the_job_its_old_state_and_a_name():
    found = review(job([EXIT]), "UPDATE", oldObject=job())
    assert (found.job.rules, found.old.rules) == ([EXIT], None)
    assert review(job(name="", generateName="train-")).name == "train-"
    assert review(job(), name="given").name == "given"


def test_the_rule_is_put_first():
    [added] = change(job([EXIT])).patch
    assert added == {"op": "add", "path": "/spec/podFailurePolicy/rules/0", "value": RULE}
    [created] = change(job()).patch
    assert (created["path"], created["value"]) == ("/spec/podFailurePolicy", {"rules": [RULE]})


@pytest.mark.parametrize(
    ("found", "operation"),
    [
        (None, "DELETE"),
        (job(restart="OnFailure"), "CREATE"),
        (job(annotations={keys.JOB_EVICTIONS: keys.COUNT_EVICTIONS}), "CREATE"),
        (job([ABOUT_EVICTIONS]), "CREATE"),
        (job([RULE]), "UPDATE"),
        (job(), "CONNECT"),
    ],
    ids=["no object", "restarts", "opted out", "a rule of its own", "an update without the old object", "CONNECT"],
)
def test_other_jobs_are_not_changed(found, operation):
    assert change(found, operation) == NOTHING


def test_a_full_policy_is_reported_unless_it_covers_evictions():
    full = [EXIT] * MOST_RULES
    assert change(job(full)).patch == ()
    assert f"has {MOST_RULES} rules" in change(job(full)).warning
    assert change(job([*full[1:], ABOUT_EVICTIONS])) == NOTHING


@pytest.mark.parametrize(
    ("restart", "default", "want"),
    [("Never", "OnFailure", True), ("", "Never", True), ("", "OnFailure", False), ("OnFailure", "Never", False)],
)
def test_the_default_restart_policy_decides_where_the_job_has_none(restart, default, want):
    assert gets_rule(review(job(restart=restart)).job, restart_policy=default) is want
