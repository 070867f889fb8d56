"""One eviction, against every kind of response of the API server."""

import json

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Cut, Slow
from webhook.cluster.writes import evictions
from webhook.cluster.writes.evictions import Evicted, EvictionObstacle, Later, Refused, evict
from webhook.core.model.amounts import Namespace, Uid
from webhook.core.reclaim.holds import EvictionTarget

PODS = "/api/v1/pods"


def put(api, name="p"):
    made = builders.pod(name, namespace="team-a")
    return Uid(api.put(PODS, name, namespace="team-a", **made)["metadata"]["uid"])


def target(uid, name="p"):
    return EvictionTarget(uid, Namespace("team-a"), name, Uid("b"), 0)


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
    ],
    ids=["its budget is used up", "its budget is not counted yet", "two budgets", "a policy forbids it"],
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


class TestAPodThatChangesFasterThanItIsEvicted:
    async def test_is_deleted_by_its_uid_after_a_dry_run(self, api, connection):
        uid = put(api)
        api.faults["post"].append(Answer(409))
        assert await evict(connection, target(uid)) is Evicted.OVERTAKEN
        assert not api.objects[PODS]
        assert [each["deleteOptions"].get("dryRun") for each in api.evictions] == [["All"]]

    @pytest.mark.parametrize("answer", [Answer(429), Answer(403), Answer(500), Answer(409)], ids=str)
    async def test_stays_where_the_dry_run_does_not_allow_it(self, api, connection, answer):
        uid = put(api)
        api.faults["post"].extend([Answer(409), answer])
        assert isinstance(await evict(connection, target(uid)), Later)
        assert api.objects[PODS]

    async def test_needs_no_dry_run_where_no_budget_covers_it(self, api, connection):
        uid = put(api)
        api.faults["post"].append(Answer(409))
        assert await evict(connection, target(uid), is_guarded=False) is Evicted.OVERTAKEN
        assert (api.count("post"), api.count("delete")) == (1, 1)

    async def test_is_evicted_later_where_its_budget_may_not_be_counted_yet_and_deleted_then(self, api, connection):
        uid = put(api)
        api.faults["post"].extend([Answer(429, retry_after="10")] * 2)
        assert isinstance(await evict(connection, target(uid)), Later)
        assert await evict(connection, target(uid), is_repeated=True) is Evicted.OVERTAKEN

    async def test_is_not_deleted_where_its_budget_is_used_up(self, api, connection):
        uid = put(api)
        api.faults["post"].append(Answer(429))
        assert isinstance(await evict(connection, target(uid), is_repeated=True), Refused)
        assert api.objects[PODS]

    async def test_is_not_deleted_by_a_dry_run(self, api, connection):
        uid = put(api)
        api.faults["post"].append(Answer(409))
        assert isinstance(await evict(connection, target(uid), is_trial=True), Later)
        assert api.objects[PODS]


async def test_a_request_whose_connection_breaks_is_repeated(api, connection, monkeypatch):
    monkeypatch.setattr(evictions, "LATER_SECONDS", 0.01)
    uid = put(api)
    api.faults["post"].append(Cut(is_carried_out=False))
    assert await evict(connection, target(uid)) is Evicted.ACCEPTED
    assert api.count("post") == 2


async def test_a_server_that_drops_every_connection_is_left_alone_for_a_while(api, connection, monkeypatch):
    monkeypatch.setattr(evictions, "LATER_SECONDS", 0.01)
    uid = put(api)
    api.always["post"] = Cut(is_carried_out=False)
    assert isinstance(await evict(connection, target(uid)), Later)
    assert api.count("post") == evictions.TRIES


async def test_a_request_without_an_answer_is_not_repeated_at_once(api, connection, monkeypatch):
    """It has had its time, and so has the foreign webhook that the API server waits for."""
    monkeypatch.setattr(evictions, "SECONDS", 0.5)
    uid = put(api)
    api.always["post"] = Slow(30)
    assert isinstance(await evict(connection, target(uid)), Later)
    assert api.count("post") == 1


@pytest.mark.parametrize("fault", [Answer(500), Answer(503), Answer(413), Slow(30)], ids=str)
async def test_a_pod_without_budgets_is_deleted_where_the_eviction_api_fails(api, connection, monkeypatch, fault):
    monkeypatch.setattr(evictions, "SECONDS", 0.5)
    uid = put(api)
    api.faults["post"].append(fault)
    assert await evict(connection, target(uid), is_guarded=False) is Evicted.DELETED
    assert not api.objects[PODS]


async def test_a_dry_run_goes_the_same_ways(api, connection):
    uid = put(api)
    api.faults["post"].append(Answer(500))
    assert await evict(connection, target(uid), is_guarded=False, is_trial=True) is Evicted.DELETED
    assert api.objects[PODS]
    assert api.count("patch") == 0


@pytest.mark.parametrize(
    ("answers", "is_guarded", "want"),
    [
        ((429, 200), True, EvictionObstacle.BUDGET),
        ((500, 200), True, EvictionObstacle.BUDGET),
        ((429, 200), False, EvictionObstacle.BUDGET),
        ((403, 200), False, EvictionObstacle.POLICY),
        ((400, 200), False, EvictionObstacle.POLICY),
        ((500, 500), False, EvictionObstacle.FAILURE),
        ((500, 403), False, EvictionObstacle.POLICY),
    ],
    ids=[
        "its budget is used up",
        "two budgets, or a fault that a budget could hide",
        "a policy that answers like a budget",
        "a policy forbids it",
        "a policy refuses the request",
        "neither way works",
        "a policy forbids the deletion",
    ],
)
async def test_a_refusal_says_what_is_in_the_way(api, connection, answers, is_guarded, want):
    uid = put(api)
    for verb, status in zip(("post", "delete"), answers, strict=True):
        api.faults[verb].append(Answer(status))
    outcome = await evict(connection, target(uid), is_guarded=is_guarded)
    assert (type(outcome), outcome.obstacle) == (Refused, want)
    assert api.objects[PODS]


def padded(api, **metadata):
    """A pod at the limit of what can be stored."""
    uid = put(api)
    made = api.objects[PODS]["team-a/p"]
    made["metadata"] |= metadata
    made["status"] = {"containerStatuses": [{"name": "main", "image": "x" * 300}]}
    api.object_bytes = len(json.dumps(made))
    return uid


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x" * 1_200_000, "uid": "u"}


async def test_a_pod_that_is_too_large_to_be_updated_loses_metadata_and_is_evicted(api, connection):
    uid = padded(api, ownerReferences=[OWNER])
    assert await evict(connection, target(uid), is_guarded=True) is Evicted.ACCEPTED
    assert not api.objects[PODS]


async def test_a_pod_that_is_too_large_by_what_stays_loses_its_statuses(api, connection):
    """Tolerations cannot be taken away, and nothing else of it is large."""
    uid = put(api)
    made = api.objects[PODS]["team-a/p"]
    made["spec"]["tolerations"] = [{"key": f"k{n}", "value": "v" * 60} for n in range(15_000)]
    made["metadata"]["annotations"] = {"note": "short"}
    made["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "image": "x" * 300}]}
    api.object_bytes = len(json.dumps(made))
    assert await evict(connection, target(uid)) is Evicted.ACCEPTED
    assert [asked.path.rpartition("/")[2] for asked in api.asked if asked.verb == "patch"] == ["p", "status"]


async def test_a_pod_of_ordinary_size_keeps_its_metadata(api, connection):
    uid = put(api)
    api.objects[PODS]["team-a/p"]["metadata"]["ownerReferences"] = [OWNER | {"name": "x"}]
    api.faults["post"].append(Answer(500))
    assert isinstance(await evict(connection, target(uid)), Refused)
    assert api.count("patch") == 0


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
