"""Pods with Fairgate's gate, as the watch shows them."""

import json

import msgspec
import pytest

from tests import builders as b
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.objects.objects import without_large_parts
from webhook.kube.pod.existing import to_resident
from webhook.kube.pod.waiting import to_waiting

DECISION = {
    "demand": {b.GPU: "2"},
    "gpus": "2",
    "mode": "queue",
    "nodes": [],
    "code": "WaitsForLimit",
    "policy": "p1",
    "user": "alice",
    "asked": "preemptible",
    "at": "now",
}


def gated(*, gates=(keys.QUEUE_GATE,), decision=DECISION, **more):
    annotations = {keys.WAITING: "waits: x", **({keys.DECISION: json.dumps(decision)} if decision else {})}
    made = b.pod(labels={keys.TEAM: "vision", keys.TIER: "preemptible"}, annotations=annotations, uid="u1", **more)
    made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    made["metadata"] |= {"resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return made


def selecting(manifest, **labels):
    manifest["spec"]["nodeSelector"] = labels
    return manifest


def read(manifest):
    return msgspec.json.decode(msgspec.json.encode(manifest), type=objects.Pod)


def test_it_is_what_its_user_asked_for_with_what_was_decided_of_user_and_team():
    found = to_waiting(read(gated(gates=("example.com/gate", keys.QUEUE_GATE))), BUILT_IN_RESOURCES)
    assert (found.uid, found.team, found.user, found.version, found.text) == ("u1", "vision", "alice", "7", "waits: x")
    assert (found.pod.tier_label, found.pod.decision_annotation, found.pod.team_label) == ("preemptible", None, None)
    assert (found.pod.foreign_gates, found.is_held, found.created > 0) == (("example.com/gate",), True, True)


def test_what_a_release_changes_is_kept_with_it():
    manifest = selecting(gated(), a="b")
    parts = to_waiting(read(manifest), BUILT_IN_RESOURCES).parts
    assert (parts.metadata.uid, parts.metadata.resource_version) == ("u1", "7")
    assert (parts.metadata.labels, parts.metadata.annotations) == (
        manifest["metadata"]["labels"],
        manifest["metadata"]["annotations"],
    )
    assert bytes(parts.spec.node_selector) == b'{"a":"b"}'
    assert [gate.name for gate in parts.spec.scheduling_gates] == [keys.QUEUE_GATE]


def annotated(manifest, **annotations):
    manifest["metadata"]["annotations"] |= annotations
    return manifest


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(selecting(gated(), a="b" * 5000), id="selector"),
        pytest.param(annotated(gated(), **{keys.WAITING: "x" * 5000}), id="text that its owner wrote"),
        pytest.param(gated(gates=[keys.QUEUE_GATE, *(f"example.com/{n}" for n in range(500))]), id="gates"),
    ],
)
def test_large_parts_are_read_again_instead(manifest):
    assert to_waiting(read(manifest), BUILT_IN_RESOURCES).parts is None


def test_what_its_owner_wrote_on_it_is_not_kept_while_it_waits():
    """Thousands of pods may wait, with a manifest of 200 KB in an annotation of each."""
    manifest = annotated(gated(), **{"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000})
    manifest["metadata"]["labels"] |= {f"l{number}": "x" * 60 for number in range(200)}
    parts = to_waiting(read(manifest), BUILT_IN_RESOURCES).parts
    assert len(msgspec.json.encode(parts)) < 2000
    assert parts.metadata.labels.keys() == {keys.TEAM, keys.TIER}


def test_a_watch_that_reduces_a_large_pod_keeps_what_fairgate_wrote_on_it():
    """Or the evictor would mark it again and again."""
    ours = {keys.RECLAIMING: "2026-01-01T00:00:00Z", keys.GANG_WHOLE: "4"}
    manifest = annotated(gated(), large="x" * 200_000, **ours)
    reduced = without_large_parts(msgspec.json.encode(manifest))
    assert len(reduced) < 5000
    found = to_waiting(msgspec.json.decode(reduced, type=objects.Pod), BUILT_IN_RESOURCES)
    assert (found.keeps_room, found.gang_whole, found.text) == (True, 4, "waits: x")
    assert found.parts.metadata.annotations.keys() == {keys.DECISION, keys.WAITING, *ours}


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(gated(gates=()), id="without a gate"),
        pytest.param(gated(gates=("example.com/gate",)), id="another gate"),
        pytest.param(gated(phase="Failed"), id="ended"),
        pytest.param(gated(decision=None), id="without a decision"),
    ],
)
def test_other_pods_do_not_wait_in_line(manifest):
    assert to_waiting(read(manifest), BUILT_IN_RESOURCES) is None


def test_it_uses_nothing_while_it_waits_and_counts_when_the_gate_is_gone():
    assert to_resident(read(gated()), BUILT_IN_RESOURCES) is None
    assert to_resident(read(gated(gates=())), BUILT_IN_RESOURCES) is not None
    assert to_resident(read(gated(node="n0")), BUILT_IN_RESOURCES) is not None, "whatever the gates say, it runs"


def test_it_keeps_room_under_limits_from_the_mark_on():
    manifest = gated()
    assert not to_waiting(read(manifest), BUILT_IN_RESOURCES).keeps_room
    manifest["metadata"]["annotations"][keys.RECLAIMING] = "2026-01-01T00:00:00Z"
    assert to_waiting(read(manifest), BUILT_IN_RESOURCES).keeps_room


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("16", 16),
        ("500", 500),
        ("999", 500),
        ("0", 0),
        ("", 0),
        ("many", 0),
        ("-4", 0),
        ("4.0", 0),
        ("1" * 9000, 0),
        ("\u0664", 0),
    ],
)
def test_the_size_of_a_whole_gang_is_a_number_of_pods_whatever_its_owner_writes(text, want):
    manifest = gated()
    manifest["metadata"]["annotations"][keys.GANG_WHOLE] = text
    assert to_waiting(read(manifest), BUILT_IN_RESOURCES).gang_whole == want


def test_a_toleration_of_held_nodes_is_the_evictors_and_no_part_of_what_its_user_asked_for():
    own = {"key": "gold", "operator": "Exists"}
    held = [{"key": keys.HELD, "operator": "Equal", "value": f"h{n}", "effect": "NoSchedule"} for n in range(2)]
    manifest = gated()
    manifest["spec"]["tolerations"] = [own]
    asked = to_waiting(read(manifest), BUILT_IN_RESOURCES)
    manifest["spec"]["tolerations"] = [held[0], own, held[1]]
    found = to_waiting(read(manifest), BUILT_IN_RESOURCES)
    assert (asked.holds, found.holds) == ((), ("h0", "h1"))
    assert found.pod == asked.pod
    assert b"h1" in bytes(found.parts.spec.tolerations), "its release leaves them on the object"


@pytest.mark.parametrize(("count", "want"), [(bounds.TOLERATIONS, True), (bounds.TOLERATIONS + 1, False)])
def test_a_pod_with_more_tolerations_than_are_read_has_no_turn_and_no_held_node(count, want):
    manifest = gated()
    manifest["spec"]["tolerations"] = [
        {"key": keys.HELD, "operator": "Equal", "value": f"h{n}", "effect": "NoSchedule"} for n in range(count)
    ]
    found = to_waiting(read(manifest), BUILT_IN_RESOURCES)
    assert (found.has_turn, len(found.holds) == count) == (want, want)
