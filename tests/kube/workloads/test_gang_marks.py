"""The annotation of a workload, copied to its pod templates."""

import copy

import pytest

from tests import builders
from webhook.kube.admission.pod_patch import apply
from webhook.kube.kinds.model import Budget
from webhook.kube.objects import bounds
from webhook.kube.workloads.gangs import gang_marks, marked

GANG = {"fairgate.dev/gang": "true"}


def template(**metadata):
    return {"metadata": metadata, "spec": builders.pod()["spec"]} if metadata else {"spec": builders.pod()["spec"]}


def workload(spec, annotations=GANG):
    return {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x", "annotations": annotations}, "spec": spec}


def said(found):
    """What each template of a workload says."""
    if isinstance(found, dict):
        if "containers" in found.get("spec", {}):
            return [found.get("metadata", {}).get("annotations", {}).get("fairgate.dev/gang")]
        return [each for value in found.values() for each in said(value)]
    return [each for value in found for each in said(value)] if isinstance(found, list) else []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"template": template()}, id="a Job"),
        pytest.param({"jobTemplate": {"spec": {"template": template(labels={"a": "b"})}}}, id="a CronJob"),
        pytest.param({"replicatedJobs": [{"template": {"spec": {"template": template()}}}] * 2}, id="a JobSet"),
        pytest.param({"pytorchReplicaSpecs": {"Master": {"template": template(annotations={"a": "b"})}}}, id="roles"),
        pytest.param({"a/b~c": {"template": template(annotations=None)}}, id="keys that are escaped"),
    ],
)
def test_all_templates_get_it_and_nothing_else_changes(spec):
    document = workload(spec)
    before = copy.deepcopy(document)
    patched = apply(document, gang_marks(document, Budget()))
    assert set(said(patched["spec"])) == {"true"}
    assert document == before
    assert gang_marks(patched, Budget()) == ()


def annotations_of(document):
    return apply(document, gang_marks(document, Budget()))["spec"]


@pytest.mark.parametrize(
    ("value", "is_copied"), [("2h", True), ("soon", True), ("x" * 401, False), (7200, False), (None, False)]
)
def test_a_run_time_is_copied_as_it_is_written(value, is_copied):
    document = workload({"template": template()}, {"fairgate.dev/run-time": value})
    assert bool(gang_marks(document, Budget())) == is_copied
    if is_copied:
        found = annotations_of(document)["template"]["metadata"]["annotations"]
        assert found == {"fairgate.dev/run-time": value}


def test_the_domain_of_a_workload_is_copied_too():
    both = {**GANG, "fairgate.dev/topology": "preferred=rack"}
    own = {"fairgate.dev/topology": "zone"}
    document = workload({"a": {"template": template()}, "b": {"template": template(annotations=own)}}, both)
    patched = apply(document, gang_marks(document, Budget()))["spec"]
    assert patched["a"]["template"]["metadata"]["annotations"] == both
    assert patched["b"]["template"]["metadata"]["annotations"] == {**GANG, **own}
    alone = workload({"template": template()}, own)
    assert apply(alone, gang_marks(alone, Budget()))["spec"]["template"]["metadata"]["annotations"] == own
    for value in ("x" * 401, 3, None):
        assert gang_marks(workload({"template": template()}, {"fairgate.dev/topology": value}), Budget()) == ()


def test_a_template_that_says_something_else_stays_as_it_is():
    assert gang_marks(workload({"template": template(annotations={"fairgate.dev/gang": "false"})}), Budget()) == ()


@pytest.mark.parametrize("annotations", [None, {}, {"fairgate.dev/gang": "false"}, {"fairgate.dev/gang": True}, [1]])
def test_other_workloads_stay_as_they_are(annotations):
    assert gang_marks(workload({"template": template()}, annotations), Budget()) == ()


def test_objects_of_any_size_and_depth_are_bounded():
    assert gang_marks(workload({"tasks": [{"template": template()}] * (bounds.POD_SETS + 1)}), Budget()) == ()
    deep = template()
    for _ in range(500):
        deep = {"a": [deep]}
    assert gang_marks(workload(deep), Budget()) == ()
    assert gang_marks(workload(None), Budget()) == gang_marks(workload([3]), Budget()) == ()


def test_a_marked_workload_is_the_patched_one_and_shares_what_does_not_change():
    document = workload({"a/b~c": [{"template": template(annotations={"a": "b"})}, {"template": template()}]}, GANG)
    found = marked(document, Budget())
    assert found == apply(document, gang_marks(document, Budget()))
    assert found["spec"]["a/b~c"][1]["template"]["spec"] is document["spec"]["a/b~c"][1]["template"]["spec"]
    assert marked(found, Budget()) is found
