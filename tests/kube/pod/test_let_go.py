"""Pods in line and pods with a notice are found, and let go by a patch of exactly this pod."""

import json

import pytest

from webhook.kube.objects import keys
from webhook.kube.pod.waiting import MarkedPod, by_turns, in_line, let_go_patch, with_notice


def raw(*, gates=(), annotations=None):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"containers": [], "schedulingGates": [{"name": gate} for gate in gates]}
    return json.dumps({"metadata": metadata | {"annotations": annotations}, "spec": spec}).encode()


FOUND = MarkedPod("ns", "p", "u", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("gates", "want"),
    [
        ((keys.QUEUE_GATE,), FOUND),
        (("example.com/own", keys.QUEUE_GATE), FOUND),
        (("example.com/own",), None),
        ((), None),
    ],
)
def test_a_pod_is_in_line_by_fairgates_gate_alone(gates, want):
    assert in_line(raw(gates=gates)) == want


@pytest.mark.parametrize(
    ("annotations", "want"),
    [({keys.EVICT_AT: "then"}, FOUND), ({keys.EVICT_FOR: "a"}, FOUND), ({keys.DECISION: "{}"}, None), (None, None)],
)
def test_a_notice_is_seen_by_either_of_its_annotations(annotations, want):
    assert with_notice(raw(annotations=annotations)) == want


def test_the_patch_names_the_pod_by_its_uid_and_takes_one_gate_and_what_is_said_of_the_wait():
    assert json.loads(let_go_patch(FOUND)) == {
        "metadata": {"uid": "u", "annotations": dict.fromkeys(keys.LINE_ANNOTATIONS)},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": "fairgate.dev/queue"}]},
    }


def test_a_namespace_with_any_number_of_pods_delays_no_other():
    crowd = [
        MarkedPod("crowd", f"c{number:02}", f"c{number}", f"2026-01-01T00:00:{number:02}Z") for number in range(30)
    ]
    later = [MarkedPod("later", name, name, "2026-01-02T00:00:00Z") for name in ("a", "b")]
    found = [each.name for each in by_turns([*later, *reversed(crowd)])]
    assert found[:5] == ["c00", "a", "c01", "b", "c02"]
    assert len(found) == 32


def test_what_is_no_pod_is_an_error():
    with pytest.raises(ValueError, match="metadata"):
        in_line(b"{}")
