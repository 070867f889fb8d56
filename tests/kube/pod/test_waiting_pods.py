"""Pods with Fairgate's gate, as the watch shows them."""

import json

import msgspec
import pytest

from tests import builders as b
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import keys, objects
from webhook.kube.pod.existing_pods import to_resident
from webhook.kube.pod.waiting_pods import to_waiting

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


def test_large_parts_are_read_again_instead_and_so_are_those_that_the_watch_did_not_keep():
    large = selecting(gated(), a="b" * 5000)
    assert to_waiting(read(large), BUILT_IN_RESOURCES).parts is None
    cut = gated()
    del cut["metadata"]["annotations"][keys.WAITING]
    assert to_waiting(read(cut), BUILT_IN_RESOURCES).parts is None


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
