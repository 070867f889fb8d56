"""The two webhooks as kube-apiserver uses them: what they answer, what they charge, what they refuse to change."""

import pytest

from tests.blackbox.objects import DECISION, GPU, TEAM, TIER, owned, pod


def test_a_pod_gets_its_labels_its_decision_and_its_nodes(api, server):
    made = api.create(pod("train", "team-a", gpus=2))
    assert made.is_allowed
    assert made.labels == {TEAM: "a", TIER: "guaranteed"}
    assert made.decision["nodes"] == ["node-0", "node-1", "node-2", "node-3"]
    terms = made.manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    named = [term["matchFields"] for term in terms["nodeSelectorTerms"]]
    assert named == [[{"key": "metadata.name", "operator": "In", "values": [f"node-{i}"]}] for i in range(4)]
    assert server.all_charged() == {("a", "guaranteed"): 2}


def test_mutating_alone_charges_nothing(api, server):
    for n in range(5):
        assert api.mutate(pod(f"p{n}", "team-a", gpus=4)).labels[TIER] == "guaranteed"
    assert server.all_charged() == {}


def test_a_second_call_of_the_mutating_webhook_changes_nothing(api):
    first = api.mutate(pod("train", "team-a", gpus=2))
    again = api.mutate(first.manifest)
    assert again.is_allowed
    assert "patch" not in again.response


def test_the_rest_of_the_pod_is_unchanged(api):
    manifest = pod("train", "team-a", gpus=2, nodeSelector={"kubernetes.io/os": "linux"})
    manifest["metadata"]["labels"] = {"app": "x"}
    made = api.mutate(manifest).manifest
    del made["metadata"]["labels"][TEAM], made["metadata"]["labels"][TIER], made["metadata"]["annotations"]
    del made["spec"]["affinity"]
    assert made == manifest


def test_a_dry_run_is_decided_in_full_and_charges_nothing(api, server):
    for n in range(30):
        assert api.create(pod(f"p{n}", "team-a", gpus=4), dry_run=True).is_allowed
    assert server.all_charged() == {}
    for n in range(5):
        api.create(pod(f"q{n}", "team-a", gpus=4))
    refused = api.create(pod("p", "team-a", gpus=1), dry_run=True)
    assert refused.status["code"] == 403
    assert server.charged("a") == 20


def test_the_same_uid_is_charged_once_and_allowed_again(api, server):
    final = api.create(pod("whole-share", "team-a", gpus=10)).manifest
    api.create(pod("other", "team-a", gpus=10))
    again = api.validate(final)
    assert again.is_allowed, again.status
    assert server.charged("a") == 20


def test_a_limit_is_403_forbidden_with_the_numbers(api):
    for n in range(2):
        api.create(owned(pod(f"p{n}", "team-a", gpus=9), "Job", "greedy"))
    refused = api.create(pod("one-more", "team-a", gpus=3))
    assert (refused.status["code"], refused.status["reason"]) == (403, "Forbidden")
    assert refused.status["message"].startswith("exceeded quota: team a: requested 3, limit 20, used 18")
    for part in ("team-a/Job/greedy 18", "at most 2 would pass now", "TeamLimitExceeded"):
        assert part in refused.status["message"]
    assert api.create(pod("smaller", "team-a", gpus=2)).is_allowed


def test_every_violation_is_reported_at_once(api):
    api.create(pod("p", "team-d", gpus=3))
    text = api.create(pod("q", "team-d", gpus=6)).status["message"]
    assert text.startswith("exceeded quota: ")
    for code in ("PodLimitExceeded", "UserLimitExceeded", "TeamLimitExceeded"):
        assert text.count(code) == 1


def test_a_limit_holds_in_the_validating_step_too(api):
    late = [api.mutate(pod(f"p{n}", "team-a", gpus=8)).manifest for n in range(3)]
    answers = [api.validate(manifest) for manifest in late]
    assert [answer.is_allowed for answer in answers] == [True, True, False]
    assert answers[2].status["code"] == 403
    assert answers[2].status["message"].startswith("exceeded quota: ")


def test_a_lost_race_is_429_and_the_next_try_borrows(api):
    for n in range(3):
        assert api.create(pod(f"p{n}", "team-c", gpus=6)).is_allowed
    first, second = (api.mutate(pod(name, "team-c", gpus=2)) for name in ("first", "second"))
    assert {first.labels[TIER], second.labels[TIER]} == {"guaranteed"}
    assert api.validate(first.manifest).is_allowed
    lost = api.validate(second.manifest)
    assert (lost.status["code"], lost.status["reason"]) == (429, "TooManyRequests")
    assert lost.status["details"]["retryAfterSeconds"] == 1
    assert "RaceLost" in lost.status["message"]
    retried = api.create(pod("second", "team-c", gpus=2))
    assert retried.is_allowed
    assert retried.labels[TIER] == "preemptible"


def test_a_pod_that_skipped_the_mutating_webhook_gets_a_429(api, server):
    missed = api.validate(pod("p", "team-a"))
    assert missed.status["code"] == 429
    assert missed.status["details"]["retryAfterSeconds"] == 1
    assert server.all_charged() == {}


@pytest.mark.parametrize("tier", ["guaranteed", "preemptible"])
def test_a_user_may_request_a_tier(api, tier):
    manifest = pod("p", "team-c", gpus=2)
    manifest["metadata"]["labels"] = {TIER: tier}
    assert api.create(manifest).labels[TIER] == tier


def test_a_pod_that_must_be_guaranteed_never_borrows(api):
    for n in range(4):
        api.create(pod(f"p{n}", "team-c", gpus=5))
    manifest = pod("p", "team-c", gpus=2)
    manifest["metadata"]["labels"] = {TIER: "guaranteed"}
    assert api.create(manifest).status["message"].startswith("exceeded quota: team borrower, guaranteed share")


def test_an_unknown_tier_is_refused_with_a_message(api):
    manifest = pod("p", "team-a", gpus=2)
    manifest["metadata"]["labels"] = {TIER: "gold"}
    refused = api.create(manifest)
    assert refused.status["code"] == 403
    assert "'gold'; write guaranteed (never borrow), preemptible, or leave it" in refused.status["message"]


def changed(manifest, at, key, value):
    metadata = manifest["metadata"] | {at: manifest["metadata"][at] | {key: value}}
    if value is None:
        del metadata[at][key]
    return manifest | {"metadata": metadata}


@pytest.mark.parametrize(
    ("at", "key", "value"),
    [
        ("labels", TEAM, "b"),
        ("labels", TEAM, None),
        ("labels", TIER, "preemptible"),
        ("labels", TIER, None),
        ("annotations", DECISION, "{}"),
        ("annotations", DECISION, None),
    ],
)
def test_an_update_of_our_keys_is_refused_if_the_webhook_is_called(api, at, key, value):
    made = api.create(pod("p", "team-a")).manifest
    refused = api.update(made, changed(made, at, key, value))
    assert refused.status["code"] == 403
    assert key in refused.status["message"]
    assert "ProtectedKeyChanged" in refused.status["message"]


def test_other_updates_pass(api):
    made = api.create(pod("p", "team-a")).manifest
    assert api.update(made, changed(made, "labels", "app", "x")).is_allowed
    assert api.update(made, changed(made, "annotations", "note", "x")).is_allowed


def test_labels_cannot_be_added_to_a_pod_that_has_none(api):
    plain = pod("p", "team-a")
    plain["metadata"] |= {"labels": {}, "annotations": {}}
    assert api.update(plain, changed(plain, "labels", TIER, "guaranteed")).status["code"] == 403


def test_a_deleted_pod_frees_its_gpus(api, server):
    made = [api.create(pod(f"p{n}", "team-a", gpus=10)) for n in range(2)]
    assert not api.create(pod("q", "team-a")).is_allowed
    assert api.delete(made[0].manifest, dry_run=True).is_allowed
    assert server.charged("a") == 20
    assert api.delete(made[0].manifest).is_allowed
    assert server.charged("a") == 10
    assert api.delete(made[0].manifest).is_allowed
    assert server.charged("a") == 10
    assert api.create(pod("q", "team-a", gpus=10)).is_allowed


def test_pods_without_gpus_are_not_changed(api, server):
    for manifest in (pod("web", "team-a", gpus=None), pod("web", "unowned", gpus=None), pod("zero", "unowned", gpus=0)):
        made = api.create(manifest)
        assert made.is_allowed
        assert made.manifest["metadata"].keys() == manifest["metadata"].keys() | {"uid"}
    assert server.all_charged() == {}


def test_a_pod_with_a_generated_name_is_admitted(api, server):
    for _ in range(2):
        manifest = pod("x", "team-a", gpus=2)
        del manifest["metadata"]["name"]
        manifest["metadata"]["generateName"] = "train-"
        advice = api.mutate(manifest)
        assert api.validate(advice.manifest).is_allowed
    assert server.charged("a") == 4


@pytest.mark.parametrize(
    "more",
    [{"nodeName": "node-1"}, {"schedulerName": "volcano"}],
    ids=["nodeName", "another scheduler"],
)
def test_pods_of_other_schedulers_are_charged_and_not_changed(api, server, more):
    manifest = pod("p", "team-a", gpus=3, **more)
    made = api.create(manifest)
    assert made.is_allowed
    assert made.manifest["spec"] == manifest["spec"]
    assert server.charged("a") == 3
    assert api.create(pod("too-much", "team-a", gpus=18, **more)).status["code"] == 403


def test_pods_of_an_exempt_namespace_are_not_changed(api):
    made = api.create(pod("p", "kube-system", gpus=3))
    assert made.is_allowed
    assert "labels" not in made.manifest["metadata"]


def test_the_first_choice_has_room_for_the_pod(api):
    """Seven pods of 6 GPUs cannot be on four nodes of 10, whatever the limits allow."""
    made = [api.create(pod(f"p{n}", namespace, gpus=6)) for n in range(3) for namespace in ("team-a", "team-b")]
    firsts = [one.decision["nodes"][0] for one in made if one.is_allowed and one.decision["nodes"]]
    assert len(firsts) == len(set(firsts)) == 4
    waits = api.create(pod("waits", "team-c", gpus=6))
    assert waits.is_allowed
    assert waits.decision["nodes"] == []
    assert waits.warnings == (f"no node has {GPU} 6 free now: the pod waits; it fits on 4 nodes once empty and open",)


def test_each_decision_is_one_line_in_the_log(api, server):
    api.create(pod("one-line", "team-a", gpus=2))
    server.wait_until(lambda: len([line for line in server.lines("decision") if line["name"] == "one-line"]) == 2)
    mutate, validate = (line for line in server.lines("decision") if line["name"] == "one-line")
    assert (mutate["phase"], validate["phase"]) == ("mutate", "validate")
    assert mutate["nodes"][0] == validate["nodes"][0]
    assert (mutate["pod_uid"], bool(validate["pod_uid"])) == ("", True)
    for line in (mutate, validate):
        want = {"outcome": "admit", "team": "a", "tier": "guaranteed", "gpus": 2, "user": "alice@example.com"}
        assert want.items() <= line.items()


def test_the_audit_annotations_have_the_decision(api):
    audit = api.create(pod("p", "team-a", gpus=2)).response["auditAnnotations"]
    assert audit == {"code": "WithinShare", "team": "a", "tier": "guaranteed", "gpus": "2", "nodes": "node-0"}
