"""Retries of controllers: which refusals trigger one, and the patch."""

import json

import msgspec
import pytest

from webhook.core.admission.refused_owners import RefusedOwner
from webhook.core.reclaim.reclaim_pods import Controller
from webhook.kube.pod.outcomes import RefusalEvent, refused_owner, retry_patch


def event(**more):
    base = {
        "metadata": {"namespace": "team-a"},
        "reason": "Refused",
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "u3",
            "namespace": "team-a",
        },
    }
    return msgspec.convert(base | more, RefusalEvent)


def test_a_refusal_event_names_the_controller():
    assert refused_owner(event()) == RefusedOwner("team-a", Controller("batch/v1", "Job", "train", "u3"))
    related = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u1", "namespace": "elsewhere"}
    assert refused_owner(event(related=related)) == RefusedOwner(
        "team-a", Controller("apps/v1", "ReplicaSet", "web-1", "u1")
    )


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"reason": "Reclaimed"}, id="another reason"),
        pytest.param({"metadata": {}}, id="no namespace"),
        pytest.param({"involvedObject": {"kind": "Job", "apiVersion": "batch/v1", "name": "j"}}, id="no UID"),
        pytest.param(
            {"involvedObject": {"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "name": "j", "uid": "u"}},
            id="a kind that is not retried",
        ),
    ],
)
def test_other_events_trigger_no_retry(more):
    assert refused_owner(event(**more)) is None


def test_a_retry_patch_is_an_annotation_with_the_uid():
    assert json.loads(retry_patch("u1", at="2026-01-01T00:00:00Z")) == {
        "metadata": {"uid": "u1", "annotations": {"fairgate.dev/retry-at": "2026-01-01T00:00:00Z"}}
    }
