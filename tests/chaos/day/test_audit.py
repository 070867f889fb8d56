"""What the audit log says of pods without GPUs."""

from __future__ import annotations

import json

import pytest

from tests.chaos.day.audit import plain_pods
from tests.control_plane.objects import pod

SLOW = {"apiserver.latency.k8s.io/validating-webhook": "10.002s"}
CALLED = {"mutation.webhook.admission.k8s.io/round_0_index_0": "{}"}
FAILED_OPEN = {"failed-open.mutation.webhook.admission.k8s.io/round_0_index_0": "mutate.fairgate.dev"}


def line(code: int = 201, *, gpus: int = 0, message: str = "", **more: object) -> str:
    event = {
        "verb": "create",
        "stage": "ResponseComplete",
        "objectRef": {"resource": "pods", "namespace": "red", "name": "a"},
        "requestObject": pod("a", gpus=gpus),
        "responseStatus": {"code": code, "message": message},
        "requestReceivedTimestamp": "2026-11-26T09:00:00.000000Z",
        "stageTimestamp": "2026-11-26T09:00:00.250000Z",
    }
    return json.dumps(event | more)


def test_creations_of_pods_without_gpus_count_and_no_others(tmp_path):
    others = [line(gpus=1), line(verb="delete"), line(objectRef={"resource": "pods", "subresource": "binding"})]
    (tmp_path / "log").write_text("\n".join([line(), line(409), *others, line()[:100]]))
    found = plain_pods(tmp_path / "log")
    assert (found.created, found.slowest_seconds, found.refused, found.delayed) == (1, 0.25, [], [])


@pytest.mark.parametrize("notes", [SLOW, CALLED, FAILED_OPEN], ids=["waited", "sent", "skipped"])
def test_one_that_met_a_webhook_is_found(tmp_path, notes):
    (tmp_path / "log").write_text(line(annotations=notes))
    assert plain_pods(tmp_path / "log").delayed == [f"red/a after 0.25 s: {[*notes]}"]


def test_one_that_was_refused_because_of_fairgate_is_found(tmp_path):
    refused = [line(500, message='failed calling webhook "validate"'), line(403, message="denied by fairgate-x")]
    (tmp_path / "log").write_text("\n".join([*refused, line(403, message="serviceaccount not found")]))
    assert len(plain_pods(tmp_path / "log").refused) == 2
