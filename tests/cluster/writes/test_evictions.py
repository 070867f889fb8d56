"""One eviction, against every kind of response of the API server."""

import json

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Slow
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted, Later, Refused, evict
from webhook.core.model.names import Namespace, Uid
from webhook.core.reclaim.reservation import Target

PODS = "/api/v1/pods"


def put(api, name="p"):
    made = builders.pod(name, namespace="team-a")
    return Uid(api.put(PODS, name, namespace="team-a", **made)["metadata"]["uid"])


def target(uid, name="p"):
    return Target(uid, Namespace("team-a"), name, Uid("b"), 0)


async def test_an_accepted_eviction_ends_the_pod(api, connection):
    uid = put(api)
    assert await evict(connection, target(uid)) is Evicted.ACCEPTED
    assert not api.objects[PODS]


async def test_a_dry_run_changes_nothing(api, connection):
    uid = put(api)
    assert await evict(connection, target(uid), is_trial=True) is Evicted.ACCEPTED
    assert api.objects[PODS]


async def test_a_deleted_pod_counts_as_evicted(api, connection):
    put(api, "other")
    assert await evict(connection, target(Uid("u1"))) is Evicted.GONE


async def test_another_pod_of_the_same_name_is_left_alone(api, connection):
    put(api)
    assert isinstance(await evict(connection, target(Uid("u-before"))), Later)
    assert api.objects[PODS]


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (Answer(429), Refused),
        (Answer(429, retry_after="7"), Later),
        (Answer(500), Refused),
        (Answer(403), Refused),
        (Answer(409), Later),
    ],
    ids=["its budget is used up", "its budget is not counted yet", "two budgets", "a policy forbids it", "a conflict"],
)
async def test_a_refusal_is_distinguished_from_a_postponement(api, connection, answer, want):
    uid = put(api)
    api.faults["post"].append(answer)
    outcome = await evict(connection, target(uid))
    assert isinstance(outcome, want)
    assert str(answer.status) in outcome.why
    assert api.objects[PODS]
    if answer.retry_after:
        assert outcome.seconds == 7


async def test_a_request_without_a_response_is_repeated(api, connection, monkeypatch):
    monkeypatch.setattr(evictions, "SECONDS", 0.5)
    monkeypatch.setattr(evictions, "LATER_SECONDS", 0.01)
    uid = put(api)
    api.faults["post"].append(Slow(30))
    assert await evict(connection, target(uid)) is Evicted.ACCEPTED
    assert api.count("post") == 2


async def test_a_server_that_never_answers_is_left_alone_for_a_while(api, connection, monkeypatch):
    monkeypatch.setattr(evictions, "SECONDS", 0.5)
    monkeypatch.setattr(evictions, "LATER_SECONDS", 0.01)
    uid = put(api)
    api.always["post"] = Slow(30)
    outcome = await evict(connection, target(uid))
    assert isinstance(outcome, Later)
    assert api.count("post") == evictions.TRIES


async def test_the_request_has_the_uid_of_the_pod(api, connection):
    uid = put(api)
    await evict(connection, target(uid), is_trial=True)
    (sent,) = api.evictions
    assert sent["deleteOptions"] == {"preconditions": {"uid": uid}, "dryRun": ["All"]}
    assert json.dumps(sent).count("resourceVersion") == 0


@pytest.mark.parametrize("answer", [Answer(429), Answer(429, retry_after="7"), Answer(500)])
async def test_overridden_budgets_are_bypassed_by_a_deletion(api, connection, answer):
    uid = put(api)
    api.faults["post"].append(answer)
    forced = target(uid)._replace(is_past_budgets=True)
    assert await evict(connection, forced) is Evicted.DELETED
    assert not api.objects[PODS]


async def test_a_deleted_pod_has_the_disruption_condition(api, connection):
    """Without the condition a podFailurePolicy that ignores disruptions would count a failure."""
    uid = put(api)
    api.faults["post"].append(Answer(429))
    forced = target(uid)._replace(is_past_budgets=True, at=1_700_000_000)
    api.faults["delete"].append(Answer(409))
    await evict(connection, forced)
    ((condition,),) = [pod["status"]["conditions"] for pod in api.objects[PODS].values()]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert condition["lastTransitionTime"] == "2023-11-14T22:13:20Z"


async def test_a_failed_condition_patch_prevents_no_deletion(api, connection):
    uid = put(api)
    api.faults["post"].append(Answer(429))
    api.faults["patch"].append(Answer(403))
    assert await evict(connection, target(uid)._replace(is_past_budgets=True)) is Evicted.DELETED


async def test_a_refusal_without_a_budget_causes_no_deletion(api, connection):
    uid = put(api)
    api.faults["post"].append(Answer(403))
    assert isinstance(await evict(connection, target(uid)._replace(is_past_budgets=True)), Refused)
    assert api.objects[PODS]
