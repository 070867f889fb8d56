"""How long pods ran, read from their status, whatever a user wrote into it."""

import json

import pytest

from tests import builders as b
from webhook.core.model.amounts import ONE_GPU
from webhook.kube.objects import keys
from webhook.kube.pod.outcomes import to_run

START, END = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def pod(status, *, labels=None):
    made = b.pod("p", namespace="vision", labels={keys.TEAM: "vision"} if labels is None else labels, uid="u1")
    return {**made, "status": status}


def ended(*ends):
    return [{"state": {"terminated": {"finishedAt": end}}} for end in ends]


def test_a_running_pod_runs_since_kubelet_started_it():
    run = to_run(pod({"phase": "Running", "startTime": START}))
    assert (run.uid, run.team, run.ended) == ("u1", "vision", 0)


def test_an_ended_pod_ran_until_its_last_container_ended():
    run = to_run(pod({"phase": "Succeeded", "startTime": START, "containerStatuses": ended(START, END)}))
    assert run.ended - run.started == 3600


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="not started"),
        pytest.param({"phase": "Pending", "startTime": START}, id="pending"),
        pytest.param({"phase": "Failed", "startTime": START, "containerStatuses": ended(END)}, id="failed"),
        pytest.param({"phase": "Succeeded", "startTime": START}, id="no end is known"),
        pytest.param({"phase": "Succeeded", "startTime": END, "containerStatuses": ended(START)}, id="backwards"),
        pytest.param({"phase": "Running", "startTime": "yesterday"}, id="no time"),
        pytest.param({"phase": "Running", "startTime": 7}, id="malformed"),
    ],
)
def test_others_say_nothing(status):
    assert to_run(pod(status)) is None


def test_pods_of_no_team_are_left_out():
    assert to_run(pod({"phase": "Running", "startTime": START}, labels={})) is None


@pytest.mark.parametrize(
    ("decision", "want"),
    [
        pytest.param({"gpus": "2", "user": "ann"}, (2 * ONE_GPU, "ann"), id="as it was charged"),
        pytest.param({"gpus": "many"}, (0, None), id="an amount that is none"),
        pytest.param({"gpus": "-1"}, (0, None), id="a negative amount"),
        pytest.param(None, (0, None), id="no decision"),
        pytest.param("x" * 20_000, (0, None), id="too long"),
    ],
)
def test_its_size_and_user_are_those_of_its_decision(decision, want):
    made = pod({"phase": "Running", "startTime": START})
    basis = {"demand": {}, "mode": "auto", "nodes": [], "code": "Borrows", "policy": "p", "at": START}
    if decision is not None:
        text = decision if isinstance(decision, str) else json.dumps(basis | decision)
        made["metadata"]["annotations"] = {keys.DECISION: text}
    run = to_run(made)
    assert (run.gpus, run.user) == want
