"""Large objects of a watch count the same without their large parts."""

import json

import msgspec
import pytest

from tests import builders as b
from tests.attacks.shapes import pods
from tests.kube.support.created import PODS, resident
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.objects.objects import without_large_parts
from webhook.kube.pod.existing import to_resident
from webhook.kube.pod.outcomes import work_of

SHAPES = dict(pods(300_000))
UNCOUNTABLE = ("resources", "claims", "a long resource name")


def decoded_by_a_watch(shape):
    shape["metadata"]["uid"], shape["spec"]["nodeName"] = "u", "n0"
    return to_resident(PODS.decode(without_large_parts(json.dumps(shape).encode())), BUILT_IN_RESOURCES)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNCOUNTABLE])
def test_trimming_does_not_change_what_counts(name):
    try:
        found = decoded_by_a_watch(SHAPES[name])
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            resident(SHAPES[name])
        return
    want = resident(SHAPES[name])
    compared = ("uid", "namespace", "node", "team_label", "tier_label", "anti_affinity_rules", "is_managed")
    assert [getattr(found, each) for each in compared] == [getattr(want, each) for each in compared]
    assert found.demand.gpus == want.demand.gpus


@pytest.mark.parametrize("name", UNCOUNTABLE)
def test_a_stored_pod_that_cannot_be_trimmed_is_an_error(name):
    with pytest.raises(ValueError, match="longer than in any admitted pod"):
        decoded_by_a_watch(SHAPES[name])


def test_what_kubelet_reports_of_a_large_pod_still_counts():
    containers = [{"name": f"c{n}", "resources": {"requests": {"cpu": "1"}}} for n in range(400)]
    statuses = [
        {"name": f"c{n}", "allocatedResources": {"cpu": "2"}, "state": {"waiting": {"message": "x" * 500}}}
        for n in range(400)
    ]
    made = b.pod(containers=containers, phase="Running") | {"status": {"containerStatuses": statuses}}
    assert dict(decoded_by_a_watch(made).demand.requests)["cpu"] == 800_000
    for status in statuses:
        status["state"] = {"running": {"startedAt": "2026-11-21T10:00:00Z"}, "waiting": {"message": "x" * 500}}
        status["restartCount"] = 2
    made["status"]["startTime"] = "2026-11-21T09:00:00Z"
    trimmed = msgspec.json.decode(without_large_parts(json.dumps(made).encode()), type=objects.Pod)
    whole = msgspec.json.decode(json.dumps(made), type=objects.Pod)
    assert work_of(trimmed) == work_of(whole)
    assert work_of(whole).since > work_of(whole).runtime_from


def test_statuses_of_too_many_containers_are_dropped():
    statuses = [{"name": f"c{n}", "imageID": "x" * 100} for n in range(2000)]
    made = json.dumps(b.pod(phase="Running") | {"status": {"phase": "Running", "containerStatuses": statuses}})
    assert json.loads(without_large_parts(made.encode()))["status"] == {"phase": "Running", "containerStatuses": None}
