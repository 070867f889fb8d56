"""Reviews of Jobs: the rule by which evictions do not count, where it is possible and no other rule conflicts."""

import base64
import json
import time

import jsonpatch
import pytest

from tests.builders import encode
from tests.core.support.make import policy, world
from webhook.core.model.amounts import Namespace
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import Enforcement, JobEvictions, WorkloadRules
from webhook.kube.admission.job_review import MOST_RULES, RULE
from webhook.kube.admission.reviews import ReviewError
from webhook.server.review.workload_reviews import answer_job

EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
COUNTS = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job(rules=None, *, restart="Never", replaces="TerminatingOrFailed", **annotations):
    spec = {"template": {"spec": {"restartPolicy": restart}}, "podReplacementPolicy": replaces}
    if rules is not None:
        spec["podFailurePolicy"] = {"rules": rules}
    return {"metadata": {"name": "j", "annotations": annotations}, "spec": spec}


def asked(made, operation="CREATE", **more):
    request = {"uid": "r1", "operation": operation, "namespace": "team-a", "object": made, **more}
    return encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def answer(made, *, place=None, **more):
    found = answer_job(asked(made, **more), place or world())
    response = json.loads(found.body)["response"]
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return jsonpatch.apply_patch(made, patch), response.get("warnings", []), found.record


def test_a_job_without_a_policy_gets_the_rule_and_replaces_failed_pods():
    made, warnings, record = answer(job())
    assert made["spec"]["podFailurePolicy"] == {"rules": [RULE]}
    assert made["spec"]["podReplacementPolicy"] == "Failed"
    assert made["metadata"]["annotations"] == {"fairgate.dev/pod-replacement-policy": "TerminatingOrFailed"}
    assert (warnings, record.outcome, record.code) == ([], "admit", "EvictionsIgnored")
    assert answer(made)[0] == made, "a second review changes nothing"


def applied(spec):
    return json.dumps({"kind": "Job", "spec": spec})


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
APPLY = {"operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:podReplacementPolicy": {}}}}


def managed(manager):
    made = job()
    made["metadata"]["managedFields"] = [manager]
    return made


@pytest.mark.parametrize(
    "made",
    [job(**{LAST_APPLIED: applied({"podReplacementPolicy": "TerminatingOrFailed"})}), managed(APPLY)],
    ids=["kubectl apply", "server-side apply"],
)
def test_a_replacement_policy_that_the_manifest_sets_is_not_changed(made):
    unchanged, (warning,), record = answer(made)
    assert unchanged == made
    assert "podReplacementPolicy TerminatingOrFailed" in warning
    assert "evictions may count as failures" in warning
    assert record.outcome == "warn"


@pytest.mark.parametrize(
    "made",
    [
        job(**{LAST_APPLIED: applied({"backoffLimit": 1})}),
        job(**{LAST_APPLIED: "no JSON"}),
        job(**{LAST_APPLIED: "[]"}),
        managed(APPLY | {"operation": "Update"}),
        managed(APPLY | {"fieldsV1": {"f:spec": {"f:backoffLimit": {}}}}),
        managed({"operation": "Apply"}),
    ],
    ids=[
        "its manifest leaves it out",
        "no manifest",
        "no object",
        "an update, which lists defaults, too",
        "another field",
        "no fields",
    ],
)
def test_a_replacement_policy_by_default_is_changed(made):
    assert answer(made)[0]["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("rules", [None, []], ids=["null, as the API server writes none", "an empty list"])
def test_a_policy_without_rules_is_as_none(rules):
    made, warnings, _ = answer({**job(), "spec": {**job()["spec"], "podFailurePolicy": {"rules": rules}}})
    assert (made["spec"]["podFailurePolicy"], warnings) == ({"rules": [RULE]}, [])


def test_a_policy_of_the_user_gets_a_first_rule_and_a_warning():
    made, warnings, record = answer(job([EXIT], replaces="Failed"))
    assert made["spec"]["podFailurePolicy"]["rules"] == [RULE, EXIT]
    assert warnings == ["Job j: a first rule is added to its podFailurePolicy: evictions do not count as failures"]
    assert (record.outcome, len(warnings[0]) <= 120) == ("warn", True)


@pytest.mark.parametrize(
    "kept",
    [
        job([COUNTS]),
        job([EXIT, RULE]),
        job(restart="OnFailure"),
        job(**{"fairgate.dev/job-evictions": "count"}),
        job([EXIT] * MOST_RULES),
        job([EXIT] * 5_000),
    ],
    ids=[
        "its user decided about evictions",
        "its user ignores them already",
        "it may have no such policy",
        "its owner opts out",
        "the API server takes no more rules",
        "far too many rules",
    ],
)
def test_some_jobs_stay_as_they_are(kept):
    assert answer(kept)[0] == kept


def test_a_full_policy_causes_a_warning():
    assert "evictions may count as failures" in answer(job([EXIT] * MOST_RULES))[1][0]
    assert answer(job([RULE] * MOST_RULES))[1] == []


@pytest.mark.parametrize(
    "place",
    [
        world(policy(workloads=WorkloadRules(job_evictions=JobEvictions.COUNT))),
        world(policy(enforce=Enforcement.WARN)),
        world(policy(enforce=Enforcement.OFF)),
        world(policy(exempt_namespaces=("team-a",))),
    ],
    ids=["policy turns it off", "nothing is enforced", "it is switched off", "the namespace is exempt"],
)
def test_no_job_is_changed_where(place):
    assert answer(job(), place=place)[0] == job()


def test_a_namespace_that_is_exempt_by_its_label_is_left_alone():
    place = world()
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {"fairgate.dev/exempt": "true"}))
    assert answer(job(), place=place)[0] == job()


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        (job([RULE], replaces="Failed"), job(replaces="Failed"), [RULE]),
        (job([RULE, EXIT], replaces="Failed"), job([EXIT], replaces="TerminatingOrFailed"), [RULE, EXIT]),
        (job([RULE, EXIT], replaces="Failed"), job([RULE, EXIT], replaces="TerminatingOrFailed"), [RULE, EXIT]),
        (job([EXIT], replaces="Failed"), job(replaces="Failed"), None),
        (job([RULE, EXIT], replaces="Failed"), job([COUNTS], replaces="Failed"), [COUNTS]),
    ],
    ids=[
        "a manifest without a policy",
        "a manifest with the user's rules alone",
        "a manifest with another way to replace pods",
        "a Job that never had the rule",
        "other rules, which the API server will refuse",
    ],
)
def test_an_update_keeps_the_rule(old, new, want):
    made = answer(new, operation="UPDATE", oldObject=old)[0]
    assert made["spec"].get("podFailurePolicy", {}).get("rules") == want
    if want and want[0] == RULE:
        assert made["spec"]["podReplacementPolicy"] == "Failed"


def test_a_huge_policy_is_answered_at_once_and_not_refused():
    huge = job([{**EXIT, "onExitCodes": {"operator": "In", "values": list(range(255))}}] * 4_000)
    began = time.process_time()
    assert answer_job(asked(huge), world()).record.outcome in ("skip", "warn")
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "rules", [["x"], [{"onPodConditions": 3}], {"a": 1}, [{"action": "Ignore", "onExitCodes": []}]]
)
def test_malformed_rules_make_the_review_invalid(rules):
    with pytest.raises(ReviewError, match="Job"):
        answer_job(asked(job(rules)), world())
