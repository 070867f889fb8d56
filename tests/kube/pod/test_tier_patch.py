"""The patch of a pod's tier."""

import json

import jsonpatch
import pytest

from tests import builders
from webhook.core.model.constraints import Tier
from webhook.kube.objects import keys
from webhook.kube.objects.keys import TIER_PATH
from webhook.kube.pod.pods import read_labeled_pod, tier_patch


def found(mark, **metadata):
    pod = builders.pod(
        "p",
        uid="u1",
        labels={keys.TIER: "preemptible", keys.TEAM: "a"},
        annotations={} if mark is None else {keys.DECISION: mark},
    )
    pod["metadata"] |= metadata
    return read_labeled_pod(json.dumps(pod).encode())


def pod_with(mark):
    return builders.pod(
        "p", uid="u1", labels={keys.TIER: "preemptible", keys.TEAM: "a"}, annotations={keys.DECISION: mark, "mine": "x"}
    )


def patched(pod, tier, *, of=None):
    """A pod after the patch for it as it is; or for another state of it, which was read."""
    patch = tier_patch(read_labeled_pod(json.dumps(pod if of is None else of).encode()), tier, team="a")
    return jsonpatch.apply_patch(pod, json.loads(patch.body))


def test_the_patch_changes_only_tier_and_reason():
    mark = '{"gpus":"2","code":"Borrows","user":"ä","at":"2026-01-01T00:00:00Z"}'
    before = pod_with(mark)
    after = patched(before, Tier.GUARANTEED)
    annotation = after["metadata"]["annotations"][keys.DECISION]
    assert json.loads(annotation) == json.loads(mark) | {"code": "WithinShare"}
    assert annotation.endswith(',"at":"2026-01-01T00:00:00Z"}')
    assert after["metadata"]["labels"] == {keys.TIER: "guaranteed", keys.TEAM: "a"}
    back = patched(after, Tier.PREEMPTIBLE)
    assert json.loads(back["metadata"]["annotations"][keys.DECISION])["code"] == "Borrows"


@pytest.mark.parametrize("part", ["uid", "labels", "annotations"])
def test_the_patch_fails_where_another_write_of_fairgate_came_between(part):
    read, now = pod_with("{}"), pod_with("{}")
    changed = {
        "uid": "u2",
        "labels": {keys.TIER: "guaranteed", keys.TEAM: "a"},
        "annotations": {keys.DECISION: '{"code":"x"}'},
    }
    now["metadata"][part] = changed[part]
    with pytest.raises(jsonpatch.JsonPatchException):
        patched(now, Tier.GUARANTEED, of=read)


def test_what_a_tenant_writes_meanwhile_is_not_in_its_way():
    read, now = pod_with("{}"), pod_with("{}")
    now["metadata"]["labels"]["mine"] = now["metadata"]["annotations"]["mine"] = "7"
    after = patched(now, Tier.GUARANTEED, of=read)
    assert after["metadata"]["labels"] == {keys.TIER: "guaranteed", keys.TEAM: "a", "mine": "7"}
    assert after["metadata"]["annotations"]["mine"] == "7"


@pytest.mark.parametrize("mark", [None, "", "none", "[1]", "[" * 100_000])
def test_a_malformed_decision_stays_unchanged(mark):
    patch = tier_patch(found(mark), Tier.GUARANTEED, team="a")
    assert [each["path"] for each in json.loads(patch.body) if each["op"] == "add"] == [TIER_PATH]


def test_a_terminating_pod_is_recognized():
    assert not found(None).is_leaving
    assert found(None, deletionTimestamp="2026-01-01T00:00:00Z").is_leaving
    ended = builders.pod("p", phase="Succeeded")
    assert read_labeled_pod(json.dumps(ended).encode()).has_ended


def test_a_pod_without_a_team_gets_one():
    bare = read_labeled_pod(json.dumps(builders.pod("p", uid="u1")).encode())
    patch = tier_patch(bare, Tier.GUARANTEED, team="a")
    labels = {keys.TIER: "guaranteed", keys.TEAM: "a"}
    assert json.loads(patch.body) == {"metadata": {"uid": "u1", "labels": labels}}
    assert patch.is_merge, "it may have no labels at all"
