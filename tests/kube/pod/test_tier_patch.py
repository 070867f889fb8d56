"""The patch of a pod's tier."""

import json

import pytest

from tests import builders
from webhook.core.model.tier import Tier
from webhook.kube.objects import keys
from webhook.kube.pod.tier_patch import read_labeled_pod, tier_patch


def found(mark, **metadata):
    pod = builders.pod(
        "p",
        uid="u1",
        labels={keys.TIER: "preemptible", keys.TEAM: "a"},
        annotations={} if mark is None else {keys.DECISION: mark},
    )
    pod["metadata"] |= {"resourceVersion": "7"} | metadata
    return read_labeled_pod(json.dumps(pod).encode())


def test_the_patch_changes_only_tier_and_reason_of_this_version():
    mark = '{"gpus":"2","code":"Borrows","user":"ä","at":"2026-01-01T00:00:00Z"}'
    patch = json.loads(tier_patch(found(mark), Tier.GUARANTEED, team="a"))
    annotation = patch["metadata"].pop("annotations")[keys.DECISION]
    assert patch == {"metadata": {"uid": "u1", "resourceVersion": "7", "labels": {keys.TIER: "guaranteed"}}}
    assert json.loads(annotation) == json.loads(mark) | {"code": "WithinShare"}
    assert annotation.endswith(',"at":"2026-01-01T00:00:00Z"}')
    back = json.loads(
        json.loads(tier_patch(found(annotation), Tier.PREEMPTIBLE, team="a"))["metadata"]["annotations"][keys.DECISION]
    )
    assert back["code"] == "Borrows"


@pytest.mark.parametrize("mark", [None, "", "none", "[1]", "[" * 100_000])
def test_a_malformed_decision_stays_unchanged(mark):
    assert "annotations" not in json.loads(tier_patch(found(mark), Tier.GUARANTEED, team="a"))["metadata"]


def test_a_terminating_pod_is_recognized():
    assert not found(None).is_leaving
    assert found(None, deletionTimestamp="2026-01-01T00:00:00Z").is_leaving
    ended = builders.pod("p", phase="Succeeded")
    assert read_labeled_pod(json.dumps(ended).encode()).has_ended


def test_a_pod_without_a_team_gets_one():
    bare = read_labeled_pod(json.dumps(builders.pod("p", uid="u1")).encode())
    patch = json.loads(tier_patch(bare, Tier.GUARANTEED, team="a"))
    assert patch["metadata"]["labels"] == {keys.TIER: "guaranteed", keys.TEAM: "a"}
