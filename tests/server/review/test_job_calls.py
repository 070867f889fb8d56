"""Which webhooks are called for a created Job, in the API server's order: each Job is judged once, by one of them."""

import base64
import copy
import json
from typing import NamedTuple

import jsonpatch
import pytest

from tests.builders import reviewed
from tests.core.support.make import node, policy, team, world
from tests.kube.support.cel import AbsentError, holds
from webhook.core.model.policy import Enforcement, JobEvictions, OnWorkloadLimit, WorkloadRules
from webhook.kube.admission.job_review import MOST_RULES, RULE
from webhook.kube.registration.registration import webhook_configurations
from webhook.server.review.workload_reviews import answer_gang, answer_job, answer_workload

ANSWERS = {
    "jobs.fairgate.dev": answer_job,
    "gangs.fairgate.dev": answer_gang,
    "workloads.fairgate.dev": answer_workload,
}
EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
COUNTS = {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
READY = {"action": "Count", "onPodConditions": [{"type": "Ready", "status": "True"}]}
CONTROLLER = [{"kind": "CronJob", "name": "nightly", "controller": True}]
OWNER = [{"kind": "Project", "name": "p"}]
LEFT_ALONE = {"annotations": {"fairgate.dev/job-evictions": "count"}}
GANG = {"annotations": {"fairgate.dev/gang": "true"}}
RACK = {"annotations": {"fairgate.dev/topology": "example.com/rack"}}
TOO_MANY = "Job train: needs 12 GPUs, team team-a's limit is 10"
JOBS, GANGS, WORKLOADS = ANSWERS


class Created(NamedTuple):
    """What the API server did: the webhooks that it called, the object, and what its user reads."""

    called: list[str]
    made: dict
    warnings: list[str]
    refusal: str
    records: list


def job(rules=(), *, restart="Never", gpus=1, **metadata):
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    pod = {"restartPolicy": restart, "containers": [{"name": "main", "resources": {"limits": limits}}]}
    spec = {"parallelism": 12, "podReplacementPolicy": "TerminatingOrFailed", "template": {"metadata": {}, "spec": pod}}
    if rules != ():
        spec["podFailurePolicy"] = {"rules": rules}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", **metadata}, "spec": spec}


def create(made, *, without="", later=None, **place):
    """Call each webhook whose conditions hold, as the API server would; `later` changes the Job after the first."""
    there = world(policy(team(guaranteed=4, limit_=10), **place), [node(f"n{i}") for i in range(4)])
    hooks = {
        hook["name"]: hook
        for found in webhook_configurations(there.policy, ca_bundle_pem=None, url="https://f")
        for hook in found["webhooks"]
    }
    made, called, warnings, records = copy.deepcopy(made), [], [], []
    for name, answer in ANSWERS.items():
        if name == GANGS and later is not None:
            later(made)
        if name == without or not all(selects(each, made) for each in hooks[name]["matchConditions"]):
            continue
        called.append(name)
        found = answer(review(made), there)
        response = json.loads(found.body)["response"]
        records.append(found.record)
        warnings += response.get("warnings", [])
        if not response["allowed"]:
            return Created(called, made, warnings, response["status"]["message"], records)
        if "patch" in response:
            made = jsonpatch.apply_patch(made, json.loads(base64.b64decode(response["patch"])))
    return Created(called, made, warnings, "", records)


def selects(condition, made):
    request = {"operation": "CREATE", "kind": {"group": "batch", "version": "v1", "kind": "Job"}}
    try:
        return holds(condition["expression"], object=made, oldObject=None, request=request)
    except AbsentError:
        return False  # failurePolicy Ignore


def review(made):
    return reviewed(uid="u", operation="CREATE", namespace="team-a", object=made, userInfo={"username": "ada"})


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(job(), [JOBS], id="no policy of its own"),
        pytest.param(job(generateName="train-"), [JOBS], id="a generated name"),
        pytest.param(job([EXIT]), [JOBS], id="a policy of its own"),
        pytest.param(job([COUNTS]), [JOBS], id="a rule of its own about evictions"),
        pytest.param(job([READY]), [JOBS], id="a rule about another condition"),
        pytest.param(job(None), [JOBS], id="a policy whose rules are null"),
        pytest.param(job([]), [JOBS], id="a policy without rules"),
        pytest.param(job(ownerReferences=OWNER), [JOBS], id="an owner that is no controller"),
        pytest.param(job(**GANG), [JOBS], id="a gang"),
        pytest.param(job(restart="OnFailure"), [WORKLOADS], id="it may have no rule"),
        pytest.param(job(**LEFT_ALONE), [WORKLOADS], id="left alone"),
        pytest.param(job([COUNTS], **LEFT_ALONE), [WORKLOADS], id="left alone, with a rule of its own"),
        pytest.param(job([EXIT] * MOST_RULES), [JOBS, WORKLOADS], id="no room for the rule"),
        pytest.param(job([EXIT] * MOST_RULES, **GANG), [*ANSWERS], id="a gang without room for the rule"),
        pytest.param(job(restart="OnFailure", **GANG), [GANGS, WORKLOADS], id="a gang that may have no rule"),
        pytest.param(job([COUNTS, *[EXIT] * (MOST_RULES - 1)]), [JOBS], id="no room, and a rule of its own"),
    ],
)
def test_a_job_with_the_rule_costs_one_call_and_every_job_is_judged_once(made, want):
    found = create(made)
    assert found.called == want
    assert found.warnings.count(TOO_MANY) == 1
    assert [record.code for record in found.records].count("TeamLimitExceeded") == 1
    marked = GANG["annotations"] if made["metadata"].get("annotations") == GANG["annotations"] else None
    assert found.made["spec"]["template"]["metadata"].get("annotations") == marked


def test_jobs_of_controllers_and_without_gpus_are_not_judged():
    found = create(job(ownerReferences=CONTROLLER, **GANG))
    assert (found.called, found.warnings) == ([JOBS], [])
    assert found.made["spec"]["podFailurePolicy"] == {"rules": [RULE]}
    assert found.made["spec"]["template"]["metadata"] == {}
    assert create(job(gpus=0)).called == []
    assert create(job([COUNTS], gpus=0, **GANG)).called == [GANGS], "pods of a pool may have no GPUs"


def test_where_the_first_call_fails_or_comes_too_early_the_others_are_made():
    assert create(job(**GANG), without=JOBS).called == [GANGS, WORKLOADS]

    def ask(made):
        made["spec"]["template"]["spec"] = job()["spec"]["template"]["spec"]

    found = create(job(gpus=0, **GANG), later=ask)
    assert (found.called, found.warnings.count(TOO_MANY)) == ([GANGS, WORKLOADS], 1)


@pytest.mark.parametrize(
    ("mode", "want"), [(Enforcement.WARN, [TOO_MANY]), (Enforcement.SHADOW, [])], ids=["warn", "shadow"]
)
@pytest.mark.parametrize("rules", [(), [COUNTS]], ids=["no policy of its own", "a rule of its own about evictions"])
def test_while_policy_is_not_enforced_the_one_that_judges_has_the_record(mode, want, rules):
    found = create(job(rules, **GANG), enforce=mode)
    assert found.made == job(rules, **GANG)
    assert [each for each in found.warnings if each == TOO_MANY] == want
    [record] = [each for each in found.records if each.would]
    assert (record.would, record.code, record.enforce) == ("warn", "TeamLimitExceeded", mode.value)
    assert record.outcome == ("warn" if want else "skip")


def test_where_evictions_count_the_call_for_all_kinds_judges():
    found = create(job(), workloads=WorkloadRules(job_evictions=JobEvictions.COUNT))
    assert (found.called, found.warnings.count(TOO_MANY)) == ([JOBS, WORKLOADS], 1)


@pytest.mark.parametrize("metadata", [{}, GANG], ids=["a job", "a gang"])
def test_policy_may_refuse_a_job_in_that_call(metadata):
    found = create(job([EXIT], **metadata), workloads=WorkloadRules(OnWorkloadLimit.REJECT))
    assert found.called == [JOBS]
    assert found.refusal == f"exceeded quota: {TOO_MANY} (TeamLimitExceeded)"
    assert (found.warnings, found.made) == ([], job([EXIT], **metadata))
    [record] = found.records
    assert (record.outcome, record.code, record.name) == ("deny", "TeamLimitExceeded", "Job/train")


def test_the_domain_of_a_gang_is_judged_with_its_annotation_on_the_template():
    found = create(job(**RACK))
    assert found.called == [JOBS]
    assert any(each.startswith("Job train: requires one example.com/rack for 12 pods") for each in found.warnings)
    assert found.made["spec"]["template"]["metadata"] == RACK


def test_that_a_rule_was_added_is_never_left_out():
    made = job([EXIT], **RACK)
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "11"
    warnings = create(made).warnings
    assert (len(warnings), "a first rule is added" in warnings[0]) == (3, True)


@pytest.mark.parametrize(
    ("metadata", "want"),
    [({}, ("admit", "EvictionsIgnored")), (GANG, ("admit", "GangMarked"))],
    ids=["a job", "a gang"],
)
def test_the_record_of_a_job_that_fits_says_what_changed(metadata, want):
    made = job(**metadata)
    made["spec"]["parallelism"] = 4
    [record] = create(made).records
    assert (record.outcome, record.code) == want
    [again] = create(create(made).made).records
    assert (again.outcome, again.code) == ("admit", "WorkloadFits")


def test_a_registration_of_an_earlier_version_gets_the_same_warning_twice_which_the_api_server_joins():
    there = world(policy(team(guaranteed=4, limit_=10)), [node("n0"), node("n1")])
    made = create(job()).made
    found = [
        json.loads(answer(review(made), there).body)["response"]["warnings"] for answer in (answer_job, answer_workload)
    ]
    assert found == [[TOO_MANY], [TOO_MANY]]
