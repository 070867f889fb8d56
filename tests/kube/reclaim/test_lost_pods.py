"""Which Jobs replace the pods of lost nodes, and how such a pod is marked."""

import json

import pytest

from webhook.kube.pod.outcomes import failed_patch, replaces_at_once

NOTE = {"fairgate.dev/pod-replacement-policy": "TerminatingOrFailed"}


def job(*, uid="j", annotations=None, policy="Failed"):
    return json.dumps({"metadata": {"uid": uid, "annotations": annotations}, "spec": {"podReplacementPolicy": policy}})


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (job(annotations=NOTE), True),
        (job(), False),
        (job(annotations=NOTE, uid="another"), False),
        (job(annotations=NOTE, policy="TerminatingOrFailed"), False),
        (job(annotations={"fairgate.dev/pod-replacement-policy": "Failed"}), False),
        ("[]", False),
    ],
    ids=[
        "Fairgate changed its policy",
        "its owner wants pods replaced that ended",
        "another Job of the same name",
        "its policy is what it was",
        "it was so before",
        "no Job",
    ],
)
def test_a_job_replaces_lost_pods_only_where_its_policy_was_changed(body, want):
    assert replaces_at_once(body.encode(), "j") is want


def test_a_lost_pod_fails_for_its_node_and_not_for_itself():
    patch = json.loads(failed_patch("u", node="n0", at="2026-11-25T23:00:00Z"))
    assert patch["metadata"] == {"uid": "u"}
    assert patch["status"]["phase"] == "Failed"
    ((kind, state),) = [(each["type"], each["status"]) for each in patch["status"]["conditions"]]
    assert (kind, state) == ("DisruptionTarget", "True")
