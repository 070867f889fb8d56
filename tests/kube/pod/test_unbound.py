"""What keeps a pod off every node, by kube-scheduler's words (of 1.37)."""

import json

import msgspec
import pytest

from webhook.core.model.pod import Obstacle
from webhook.kube.objects import objects
from webhook.kube.pod.unbound import MAX_WHY, read_condition, without_names

KEPT_OFF = "node(s) didn't satisfy existing pods anti-affinity rules"
TAIL = " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."


def status(message, *, reason="Unschedulable", **more):
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message} | more
    listed = [{"type": "Ready", "status": "False"}, condition]
    return objects.PodStatus(conditions=msgspec.Raw(json.dumps(listed).encode()))


def obstacle(message, **more):
    return read_condition(status(message, **more)).unbound.obstacle


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", Obstacle.ROOM),
        ("0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector.", "room"),
        ("0/2 nodes are available: 2 Too many pods.", Obstacle.ROOM),
        ("0/4 nodes are available: 4 cannot allocate all claims.", Obstacle.ROOM),
        ("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.", Obstacle.NODES),
        ("0/4 nodes are available: 2 node(s) had untolerated taint(s), 2 node(s) were unschedulable.", Obstacle.NODES),
        ("0/0 nodes are available: no nodes available to schedule pods.", Obstacle.NODES),
        ("0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity].", Obstacle.NODES),
        (  # the profile of the scheduler adds it, and no node of Fairgate's choice will do: others may
            "0/4 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity, "
            "3 node(s) didn't match Pod's node affinity/selector.",
            Obstacle.OTHER,
        ),
        ('0/4 nodes are available: persistentvolumeclaim "data" not found.', Obstacle.OTHER),
        ("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.", Obstacle.OTHER),
        (
            "0/4 nodes are available: 1 node(s) didn't match pod affinity rules, "
            "3 node(s) didn't match Pod's node affinity/selector.",
            Obstacle.OTHER,
        ),
        ("0/4 nodes are available: 4 node(s) had volume node affinity conflict.", Obstacle.OTHER),
        (f"0/4 nodes are available: 4 {KEPT_OFF}.", Obstacle.PEERS),
        (f"0/4 nodes are available: 1 node(s) were unschedulable, 3 {KEPT_OFF}.", Obstacle.PEERS),
        (f"0/4 nodes are available: 1 node(s) didn't match pod affinity rules, 3 {KEPT_OFF}.", Obstacle.OTHER),
        (
            "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy existing pods anti-affinity rules.",
            "room",
        ),
        ("minCount (4) cannot be satisfied: 2 scheduled, 1 remaining", Obstacle.NODES),
        (
            "pod group is unschedulable, pod group is unschedulable, 0/2 placements are available, first placement "
            "status: minCount (4) cannot be satisfied: 3 scheduled, 0 remaining, pod group preemption: No preemption "
            "victims found for incoming preemptor",
            Obstacle.NODES,
        ),
        ('claim "minCount" cannot be satisfied', Obstacle.OTHER),
        ("", Obstacle.OTHER),
    ],
)
def test_the_words_of_the_scheduler_say_what_is_in_the_way(message, want):
    assert obstacle(message) == want
    assert obstacle(message + TAIL) == want


@pytest.mark.parametrize(("reason", "want"), [("SchedulingGated", Obstacle.GATE), ("SchedulerError", Obstacle.OTHER)])
def test_a_pod_that_was_not_tried_is_held_by_a_gate_or_an_error(reason, want):
    found = read_condition(status("Scheduling is blocked", reason=reason))
    assert (found.unbound.obstacle, found.is_unschedulable) == (want, False)


def test_a_reason_keeps_the_words_without_numbers_of_nodes_and_what_preemption_says():
    found = read_condition(status('0/4 nodes are available: persistentvolumeclaim "data" not found.' + TAIL))
    assert found.unbound.why == 'persistentvolumeclaim "data" not found'


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", True),
        ("minCount (4) cannot be satisfied: 2 scheduled, 1 remaining", True),
        ("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.", False),
        ("waiting for minCount pods from a gang to appear in scheduling queue", False),
    ],
)
def test_room_helps_a_pod_that_lacks_it_or_whose_group_does(message, want):
    assert read_condition(status(message)).is_for_room is want


def test_a_long_message_is_cut():
    assert len(read_condition(status("x" * 100_000)).unbound.why) <= MAX_WHY


@pytest.mark.parametrize(
    "conditions",
    [
        b"",
        b"null",
        b"[]",
        b'[{"type":"PodScheduled","status":"True"}]',
        b'[{"type":"Ready","status":"False"}]',
        b'[{"type":5}]',
        b'{"type":"PodScheduled"}',
    ],
)
def test_without_a_report_nothing_is_known(conditions):
    assert read_condition(objects.PodStatus(conditions=msgspec.Raw(conditions))) is None
    assert read_condition(None) is None


@pytest.mark.parametrize(
    "message",
    [
        "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) had untolerated taint {team: secret}.",
        "0/4 nodes are available: 4 node(s) had untolerated taint {team: secret}.",
        '0/4 nodes are available: persistentvolumeclaim "secret" not found.',
        f"0/4 nodes are available: 1 node(s) had untolerated taint {{secret}}, 3 {KEPT_OFF}.",
        "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining: secret",
        "",
    ],
)
def test_a_shared_message_says_the_same_without_names(message):
    shared = without_names(message)
    assert "secret" not in shared
    if message:
        assert obstacle(shared) is obstacle(message)
        assert read_condition(status(shared)).is_for_room is read_condition(status(message)).is_for_room
    assert without_names(None) == without_names(5) == ""
