"""The effect of an eviction on a pod's controller."""

import json

import msgspec
import pytest

from webhook.core.reclaim.victims import FailureBudget
from webhook.kube.kinds.job_failures import Job, TrainingJob, job_budget, training_budget

IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def budget(spec, **status):
    written = {"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status}
    return job_budget(msgspec.json.decode(json.dumps(written), type=Job))


def rules(*listed, **spec):
    return {"podFailurePolicy": {"rules": list(listed)}, **spec}


def exits(action, operator, *values):
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values)}}


def condition(action, kind="DisruptionTarget", status="True"):
    return {"action": action, "onPodConditions": [{"type": kind, "status": status}]}


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        ({}, {}, FailureBudget(6)),
        ({"backoffLimit": 0}, {}, FailureBudget(0)),
        ({"backoffLimit": 9}, {"failed": 4}, FailureBudget(9, 4)),
        ({}, {"failed": 1, "uncountedTerminatedPods": {"failed": ["a", "b"]}}, FailureBudget(6, 3)),
        (rules(IGNORE), {"failed": 5}, None),
        (rules(exits("FailJob", "In", 42), IGNORE), {}, None),
        (rules(exits("FailJob", "In", 42, 143), IGNORE), {}, FailureBudget(0)),
        (rules(exits("FailJob", "NotIn", 1), IGNORE), {}, FailureBudget(0)),
        (rules(exits("Ignore", "In", 143)), {}, FailureBudget(6)),
        (rules(condition("FailJob")), {}, FailureBudget(0)),
        (rules(condition("Count")), {}, FailureBudget(6)),
        (rules(condition("Ignore", "ConfigIssue")), {}, FailureBudget(6)),
        (rules(condition("Ignore", status="False")), {}, FailureBudget(6)),
        ({"backoffLimitPerIndex": 1}, {}, None),
        ({"backoffLimitPerIndex": 1, "backoffLimit": 2**31 - 1}, {}, FailureBudget(2**31 - 1)),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 9}, {"failedIndexes": "1,3-5,7"}, FailureBudget(9, 5)),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 9}, {"failedIndexes": "x,y-3,9-4"}, FailureBudget(9, 0)),
        ({"podFailurePolicy": None, "backoffLimit": None}, {"failed": None}, FailureBudget(6)),
    ],
    ids=[
        "the default limit",
        "no failure at all",
        "some counted",
        "some not counted yet",
        "the rule that ignores evictions",
        "a rule about other exit codes before it",
        "a rule about SIGTERM before it",
        "a rule about all codes but one before it",
        "a rule that ignores an exit code is no promise",
        "a rule that fails the Job",
        "a rule that counts",
        "a rule about another condition",
        "a rule about the condition's absence",
        "a limit for each index",
        "a limit for each index and no real one for all",
        "some indexes failed",
        "indexes that are none",
        "no policy",
    ],
)
def test_evictions_that_a_job_survives(spec, status, want):
    assert budget(spec, **status) == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"pytorchReplicaSpecs": {"Master": {}, "Worker": {"restartPolicy": "OnFailure"}}}, None),
        ({"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode"}}}, None),
        ({"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Never"}}}, FailureBudget(0)),
        ({"pytorchReplicaSpecs": {"Worker": {}}, "runPolicy": {"backoffLimit": 0}}, FailureBudget(0)),
        ({"pytorchReplicaSpecs": {"Worker": {}}, "runPolicy": {"backoffLimit": 3}}, None),
        ({"tfReplicaSpecs": {"Worker": {}}}, FailureBudget(0)),
        ({"paddleReplicaSpecs": {"Worker": {}}}, None),
        ({}, None),
    ],
    ids=[
        "PyTorch restarts by default",
        "by exit code",
        "never",
        "a limit of nothing",
        "a limit that evictions do not use up",
        "TensorFlow never restarts by default",
        "Paddle does",
        "nothing",
    ],
)
def test_evictions_that_a_training_job_survives(spec, want):
    written = {"metadata": {"name": "t"}, "spec": spec}
    assert training_budget(msgspec.json.decode(json.dumps(written), type=TrainingJob)) == want
