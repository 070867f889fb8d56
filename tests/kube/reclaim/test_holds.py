"""How holds, tolerations and notices are written, and read back."""

import json
from dataclasses import replace

import msgspec
import pytest

from webhook.core.model.amounts import GangId, Namespace, NodeName, TeamName, Uid
from webhook.core.model.node import NO_POD, KeptPlace
from webhook.core.reclaim.holds import Beneficiary, EvictionTarget, NodeHold, Purpose
from webhook.kube.nodes.holds import (
    deletion,
    eviction,
    hold_patch,
    is_marked,
    notice_patch,
    read_node_hold,
    toleration_patch,
)
from webhook.kube.nodes.nodes import kept_places
from webhook.kube.objects import objects

CLAIM = Beneficiary(Uid("b"), Namespace("team-b"), "b0")
TARGET = EvictionTarget(Uid("a"), Namespace("team-a"), "a0", Uid("b"), 1795255200, GangId("team-a/g"))
FORCED = EvictionTarget(
    Uid("c"), Namespace("team-a"), "c0", Uid("b"), 1795255200, is_past_budgets=True, grace_seconds=600
)
HOLDING = NodeHold("h1", NodeName("n0"), 1795255290, (CLAIM,), (TARGET, FORCED), since=1795255190)
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OURS = {"key": "fairgate.dev/held", "value": "h1", "effect": "NoSchedule"}


def body(*, taints=None, annotations=None, labels=None):
    metadata = {"name": "n0", "resourceVersion": "7", "annotations": annotations, "labels": labels}
    return json.dumps({"metadata": metadata, "spec": {"taints": taints}}).encode()


def patched(before, node_hold):
    patch = json.loads(hold_patch(before, node_hold))
    node = json.loads(before)
    node["spec"]["taints"] = patch["spec"]["taints"]
    annotations = {**(node["metadata"]["annotations"] or {}), **patch["metadata"]["annotations"]}
    node["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    return json.dumps(node).encode()


def test_a_hold_is_read_back_as_it_was_written():
    written = patched(body(taints=[GPU_TAINT], annotations={"a": "b"}), HOLDING)
    node = msgspec.json.decode(written, type=objects.Node)
    assert read_node_hold(node.metadata) == HOLDING
    assert is_marked(node)
    assert json.loads(written)["spec"]["taints"] == [GPU_TAINT, OURS]


PLACE = KeptPlace("Job team-a/j", "team-a/a0", TeamName("team-a"), (("nvidia.com/gpu", 1),), Uid("a"))
MOVES = replace(
    HOLDING,
    beneficiaries=(CLAIM._replace(purpose=Purpose.MOVES), CLAIM._replace(uid=Uid("m"), purpose=Purpose.MOVED)),
    targets=(TARGET._replace(gang=None, is_moved=True),),
    places=(PLACE, PLACE._replace(key="uid-in-line", replaces=NO_POD)),
)


@pytest.mark.parametrize("node_hold", [MOVES, replace(MOVES, beneficiaries=(), targets=())], ids=["all", "places"])
def test_places_and_moves_are_read_back_as_they_were_written(node_hold):
    node = msgspec.json.decode(patched(body(), node_hold), type=objects.Node)
    assert read_node_hold(node.metadata) == node_hold
    assert kept_places(node.metadata) == node_hold.places


def test_a_notice_where_no_pod_waits_names_no_team():
    written = json.loads(notice_patch(Uid("a"), at=1795255200, team=TeamName("")))["metadata"]["annotations"]
    assert written["fairgate.dev/evict-for"] is None


WRITTEN = (
    '{"id":"h1","until":"2026-11-21T10:01:30Z","for":[{"namespace":"team-b","name":"b0","uid":"b"}],"evict":['
    '{"namespace":"team-a","name":"a0","uid":"a","at":"2026-11-21T10:00:00Z","for":"b","gang":"team-a/g"},'
    '{"namespace":"team-a","name":"c0","uid":"c","at":"2026-11-21T10:00:00Z","for":"b","pastBudgets":true,"grace":600}'
    '],"since":"2026-11-21T09:59:50Z"}'
)
"""What version 0.1.0 writes: evictors of different versions take over from each other."""


def test_the_annotation_is_the_one_of_other_versions():
    assert read_node_hold(objects.ObjectMeta(name="n0", annotations={"fairgate.dev/hold": WRITTEN})) == HOLDING
    assert json.loads(hold_patch(body(), HOLDING))["metadata"]["annotations"] == {"fairgate.dev/hold": WRITTEN}


def test_writing_it_again_writes_nothing():
    assert hold_patch(patched(body(), HOLDING), HOLDING) is None
    assert hold_patch(body(taints=[GPU_TAINT]), None) is None


def test_removing_it_leaves_the_rest():
    after = patched(patched(body(taints=[GPU_TAINT], annotations={"a": "b"}), HOLDING), None)
    assert json.loads(after)["spec"]["taints"] == [GPU_TAINT]
    assert not is_marked(msgspec.json.decode(after, type=objects.Node))


def test_a_patch_applies_only_to_the_node_that_was_read():
    assert json.loads(hold_patch(body(), HOLDING))["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": 5}', "no json"])
def test_foreign_annotations_are_no_hold(text):
    metadata = objects.ObjectMeta(name="n0", annotations={"fairgate.dev/hold": text})
    assert read_node_hold(metadata) is None


def test_a_node_without_an_annotation_holds_nothing():
    assert read_node_hold(objects.ObjectMeta(name="n0")) is None


@pytest.mark.parametrize(("is_first", "path"), [(True, "/spec/tolerations"), (False, "/spec/tolerations/-")])
def test_a_toleration_is_added_to_this_pod_only(is_first, path):
    test, add = json.loads(toleration_patch(Uid("b"), "h1", is_first=is_first))
    assert test == {"op": "test", "path": "/metadata/uid", "value": "b"}
    assert add["path"] == path


def test_a_grace_period_that_is_too_long_is_cut():
    options = json.loads(eviction(FORCED, is_trial=False))["deleteOptions"]
    assert options == json.loads(deletion(FORCED, is_trial=False))
    assert options == {"preconditions": {"uid": "c"}, "gracePeriodSeconds": 600}
    assert json.loads(deletion(TARGET, is_trial=True)) == {"preconditions": {"uid": "a"}, "dryRun": ["All"]}


def test_a_notice_names_time_and_team():
    patch = json.loads(notice_patch(Uid("a"), at=1795255200, team="b"))
    assert patch["metadata"]["annotations"] == {
        "fairgate.dev/evict-at": "2026-11-21T10:00:00Z",
        "fairgate.dev/evict-for": "b",
    }
    assert patch["metadata"]["uid"] == "a"


KARPENTERS = {"karpenter.sh/nodepool": "cloud"}
GROUPED = {"eks.amazonaws.com/nodegroup": "gpus"}
KEPT = {"karpenter.sh/do-not-disrupt": "true"}
KEPT_IN_GROUP = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}


def own(node):
    annotations = json.loads(node)["metadata"]["annotations"]
    return {key: value for key, value in annotations.items() if key != "fairgate.dev/hold"}


@pytest.mark.parametrize(("labels", "want"), [(KARPENTERS, KEPT), (GROUPED, KEPT_IN_GROUP), ({"a": "b"}, {})], ids=str)
def test_a_held_node_is_kept_from_its_autoscaler_until_the_hold_ends(labels, want):
    held = patched(body(labels=labels), HOLDING)
    assert own(held) == want
    assert hold_patch(held, HOLDING) is None
    again = patched(held, replace(HOLDING, until=HOLDING.until + 60))
    assert own(again) == want
    assert own(patched(again, None)) == {}


@pytest.mark.parametrize("said", ["true", "false"])
def test_what_an_admin_said_of_a_node_stays(said):
    told = {"karpenter.sh/do-not-disrupt": said}
    held = patched(body(labels=KARPENTERS, annotations=told), HOLDING)
    assert own(held) == told
    assert own(patched(held, None)) == told


def test_a_hold_that_names_another_annotation_removes_only_itself():
    note = json.loads(own_hold(patched(body(labels=KARPENTERS), HOLDING))) | {"kept": "example.com/important"}
    marks = {"fairgate.dev/hold": json.dumps(note), "example.com/important": "yes"}
    assert own(patched(body(labels=KARPENTERS, annotations=marks), None)) == {"example.com/important": "yes"}


def own_hold(node):
    return json.loads(node)["metadata"]["annotations"]["fairgate.dev/hold"]
