"""What a pod that is too large to be updated loses, and what it keeps."""

import json

import jsonpatch
import pytest

from webhook.kube.pod.outcomes import KEPT_BYTES, LARGE_BYTES, reduction_of

LARGE = "x" * (LARGE_BYTES + 1)
CONTROLLER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
OWN = {"fairgate.dev/team": "a", "fairgate.dev/tier": "preemptible"}
TRACKED = "batch.kubernetes.io/job-tracking"
NOTE, DECIDED = {"note": LARGE}, {"fairgate.dev/decision": "{}"}
FEW, MANY = OWN | {"app": "x"}, {f"l{n}": "x" * 63 for n in range(LARGE_BYTES // 63)}
FOREIGN = [f"a.example/{n:060}" for n in range(LARGE_BYTES // 60)]


def pod(status=None, **metadata):
    return {"metadata": {"name": "p", "uid": "u"} | metadata, "spec": {}, "status": status or {}}


def reduced(made):
    """The pod after its reduction, with the subresource that is patched."""
    found = reduction_of(json.dumps(made).encode(), "u")
    if found is None:
        return None
    return found.subresource, jsonpatch.apply_patch(made, found.patch.decode())


@pytest.mark.parametrize(
    ("there", "want"),
    [
        ({"ownerReferences": [CONTROLLER | {"name": LARGE, "controller": False}]}, {"ownerReferences": []}),
        ({"ownerReferences": [CONTROLLER, {"name": LARGE}]}, {"ownerReferences": [CONTROLLER]}),
        ({"ownerReferences": [CONTROLLER | {"name": LARGE}]}, {"ownerReferences": []}),
        ({"annotations": NOTE | DECIDED}, {"annotations": DECIDED}),
        ({"labels": OWN | MANY}, {"labels": OWN}),
        ({"labels": FEW, "annotations": NOTE}, {"labels": FEW, "annotations": {}}),
        ({"finalizers": [TRACKED, *FOREIGN]}, {"finalizers": [TRACKED]}),
        ({"finalizers": FOREIGN[:1], "annotations": NOTE}, {"finalizers": FOREIGN[:1], "annotations": {}}),
        ({"finalizers": [f"a.kubernetes.io/{n:060}" for n in range(LARGE_BYTES // 60)]}, {"finalizers": []}),
        ({"managedFields": [{"manager": LARGE}]}, {"managedFields": [{}]}),
    ],
    ids=[
        "an owner that is no controller",
        "another owner than the controller",
        "a controller with a name that no object has",
        "annotations that Fairgate does not read",
        "too many labels",
        "a few labels stay, since budgets select by them",
        "too many finalizers, but not that by which a Job counts the pod",
        "a finalizer stays",
        "too many finalizers of Kubernetes' own domain",
        "managed fields",
    ],
)  # fmt: skip
def test_metadata_that_the_eviction_can_do_without_goes(there, want):
    subresource, after = reduced(pod(**there))
    assert subresource == ""
    assert {part: after["metadata"][part] for part in want} == want
    assert after["metadata"]["name"] == "p"
    assert len(json.dumps(after)) < KEPT_BYTES


def test_without_such_metadata_the_statuses_of_containers_go():
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": LARGE}], "conditions": []}
    assert reduced(pod(status, labels=OWN)) == (
        "status",
        pod({"phase": "Running", "podIP": "10.0.0.1", "conditions": []}, labels=OWN),
    )


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(annotations={"note": "x" * (LARGE_BYTES // 2)}), id="it is not large"),
        pytest.param(pod(message=LARGE), id="it has nothing to lose"),
    ],
)
def test_other_pods_stay_as_they_are(made):
    assert reduced(made) is None


def test_what_is_no_pod_stays_as_it_is():
    assert reduction_of(LARGE.encode(), "u") is None


def test_another_pod_of_the_same_name_is_left_alone():
    found = reduction_of(json.dumps(pod(annotations={"note": LARGE})).encode(), "other")
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(pod(annotations={"note": LARGE}), found.patch.decode())
