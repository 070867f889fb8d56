"""What the controller of a pod hears: refusals in the words of the answer, and pods that find no room; nothing else."""

import asyncio
import json

import pytest

from tests.cases.test_cases import ask, open_reviewer, pod, review
from webhook.kube.objects.events import EventReason, ObjectRef

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u1", "controller": True}
OWNED = {"ownerReferences": [OWNER]}
TEAMS = [{"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 16, "limit": 16}}]
CASE = {
    "policy": {"teams": TEAMS, "exempt": {"namespaces": ["system"]}},
    "nodes": {"n0": {"allocatable": {"nvidia.com/gpu": "8"}}},
}


@pytest.fixture
def events():
    return []


@pytest.fixture
def reviewer(tmp_path, events):
    return opened(CASE, tmp_path, events)


def opened(case, folder, events):
    return open_reviewer(case, folder, notify_owner=events.append)


def mutate(reviewer, step, *, dry_run=False, operation="CREATE"):
    asked = json.loads(review(pod(step), uid="r1", requester="controller", operation=operation))
    asked["request"]["dryRun"] = dry_run
    answer = reviewer.mutate(json.dumps(asked).encode())
    return json.loads(answer.body)["response"]


def test_a_refusal_is_an_event_on_the_controller_with_the_text_of_the_response(reviewer, events):
    response = mutate(reviewer, {"gpus": 20, "metadata": OWNED})
    [notice] = events
    assert notice.owner == ObjectRef("ReplicaSet", "team-a", "web-1", "u1", "apps/v1")
    assert (notice.reason, notice.message) == (EventReason.REFUSED, response["status"]["message"])
    assert notice.series == "TeamLimitExceeded"


@pytest.mark.parametrize(
    ("running", "gpus", "want"),
    [
        pytest.param([{"gpus": 8, "metadata": {"name": "x"}, "spec": {"nodeName": "n0"}}], 8, "NoRoomNow", id="later"),
        pytest.param([], 9, "NeverFits", id="never"),
    ],
)
def test_a_pod_without_room_is_one_event_on_its_controller(tmp_path, events, running, gpus, want):
    reviewer = opened(CASE | {"running": running}, tmp_path, events)
    mutate(reviewer, {"gpus": gpus, "metadata": OWNED})
    [notice] = events
    assert notice.series == want
    assert notice.message.endswith(f"({want})")


def test_a_refusal_at_the_commit_is_an_event_with_the_same_text(tmp_path, events):
    roomy = {"n0": {"allocatable": {"nvidia.com/gpu": "32"}}}  # only the limit is broken: the commit looks for no room
    reviewer = opened(CASE | {"nodes": roomy}, tmp_path, events)
    forged = {"labels": {"fairgate.dev/team": "b", "fairgate.dev/tier": "guaranteed"}, **OWNED}
    body = review(pod({"gpus": 20, "metadata": forged}), uid="r1", requester="controller")
    asyncio.run(reviewer.validate(body, deadline=1.0))
    mutate(reviewer, {"gpus": 20, "metadata": OWNED})
    assert len({(each.message, each.series) for each in events}) == 1
    assert len(events) == 2


@pytest.mark.parametrize(
    ("step", "more"),
    [
        pytest.param({"gpus": 20}, {}, id="a user created the pod directly"),
        pytest.param({"gpus": 20, "metadata": OWNED}, {"dry_run": True}, id="a dry run"),
        pytest.param({"gpus": 1, "metadata": OWNED}, {}, id="a pod that runs"),
        pytest.param({"gpus": 20, "metadata": OWNED | {"namespace": "system"}}, {}, id="an exempt namespace"),
    ],
)
def test_no_event_is_written_without_a_refusal_or_where_a_user_reads_the_response(reviewer, events, step, more):
    mutate(reviewer, step, **more)
    assert events == []


def test_an_admitted_pod_has_at_most_one_event(reviewer, events):
    ask(reviewer, {"gpus": 8, "metadata": OWNED}, "u9")
    assert events == []


@pytest.mark.parametrize("enforce", ["warn", "shadow", "off"])
def test_no_event_is_written_while_policy_is_not_enforced(tmp_path, events, enforce):
    reviewer = opened(CASE | {"policy": CASE["policy"] | {"enforce": enforce}}, tmp_path, events)
    mutate(reviewer, {"gpus": 20, "metadata": OWNED})
    assert events == []


def test_a_long_text_is_truncated(reviewer, events):
    mutate(reviewer, {"gpus": 20, "metadata": OWNED | {"annotations": {"fairgate.dev/requires": "x" * 3000}}})
    assert all(len(each.message) <= 1024 for each in events)
    assert events
