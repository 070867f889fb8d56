"""The gang of a pod by its markers."""

import json

import msgspec
import pytest

from tests import builders
from webhook.core.model.constraints import DomainRequest
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_resident
from webhook.kube.pod.gangs import declared_size, gang_id, gang_of, gang_of_pod_group, gang_problem, marker_of
from webhook.kube.pod.pods import InvalidPod, to_pod

ASKED = {"fairgate.dev/gang": "true"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "g"}


def decoded(**more):
    return msgspec.json.decode(json.dumps(builders.pod(**more)), type=objects.Pod)


def read(**more):
    made = decoded(**more)
    return gang_of(made.metadata, made.spec, namespace="vision")


def translated(**more):
    return to_pod(decoded(**more), namespace="vision", weights=BUILT_IN_RESOURCES)


def test_a_label_or_a_group_names_the_gang_and_an_annotation_its_size():
    found = read(labels=KUEUE, annotations={"kueue.x-k8s.io/pod-group-total-count": "4"})
    assert found == ("vision/kueue.x-k8s.io/pod-group-name=g", "g", 4, False, False, False, None, False)
    assert read(labels={"leaderworkerset.sigs.k8s.io/group-key": "k"}).is_ordered
    assert read(schedulingGroup={"podGroupName": "core"}, labels=KUEUE).id == "vision/schedulingGroup=core"
    assert read(annotations={"scheduling.k8s.io/group-name": "v"}).name == "v"
    assert read(labels={"app": "web"}) is None


def test_kube_scheduler_places_the_pods_of_its_own_groups_alone():
    assert read(schedulingGroup={"podGroupName": "core"}).is_pod_group
    assert not read(labels={"scheduling.x-k8s.io/pod-group": "core"}).is_pod_group
    assert read(schedulingGroup={}) is None


def test_a_gang_is_described_where_its_marker_names_an_object():
    assert read(labels={"ray.io/cluster": "r"}).is_described
    assert read(schedulingGroup={"podGroupName": "core"}).is_described
    assert not read(labels=KUEUE).is_described
    assert not read(annotations={"pod-group-name": "kai"}).is_described
    assert not read(annotations=ASKED, controller=("Workflow", "w")).is_described


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({"labels": KUEUE}, ("kueue.x-k8s.io/pod-group-name", "g"), id="a label"),
        pytest.param({"labels": {"ray.io/cluster": "a=b/c"}}, ("ray.io/cluster", "a=b/c"), id="any value"),
        pytest.param({"schedulingGroup": {"podGroupName": "s"}}, ("schedulingGroup", "s"), id="a group"),
        pytest.param({"annotations": ASKED, "controller": ("Job", "j")}, ("Job", "uid-of-j"), id="a controller"),
    ],
)
def test_the_marker_of_a_gang_is_read_from_its_identity(more, want):
    assert marker_of(read(**more).id, "vision") == want


def test_the_annotation_makes_a_gang_of_the_pods_of_one_controller():
    found = read(annotations=ASKED, controller=("Job", "sweep"))
    assert found == ("vision/Job=uid-of-sweep", "Job sweep", 0, True, False, True, None, False)
    assert read(annotations=ASKED) is None, "a pod of no controller is alone"
    assert read(annotations={"fairgate.dev/gang": "false"}, controller=("Job", "sweep")) is None
    assert read(annotations=ASKED, labels=KUEUE, controller=("Job", "sweep")).name == "g", "a group goes first"
    assert read(annotations=ASKED, labels=KUEUE).is_requested


def test_a_request_for_one_domain_makes_a_gang_too_and_is_read_with_it():
    asked = {"fairgate.dev/topology": "preferred=rack"}
    found = read(annotations=asked, controller=("Job", "sweep"))
    assert (found.is_requested, found.domain) == (True, DomainRequest("rack"))
    assert read(annotations=asked, labels=KUEUE).domain == DomainRequest("rack")
    for value in ("none", "not a key"):
        assert read(annotations={"fairgate.dev/topology": value}, controller=("Job", "sweep")) is None
    assert read(annotations=asked) is None
    assert "no mark of a gang" in translated(annotations=asked).domain_problem
    assert translated(annotations=asked, controller=("Job", "sweep")).domain_problem == ""


def test_a_pod_group_names_the_gang_of_its_pods():
    assert gang_of_pod_group("vision", "core") == read(schedulingGroup={"podGroupName": "core"}).id


@pytest.mark.parametrize(("said", "want"), [("4", 4), ("-4", 0), ("9" * 7, 0), ("many", 0), ("", 0)])
def test_a_size_that_is_no_number_is_unknown(said, want):
    assert declared_size({"leaderworkerset.sigs.k8s.io/size": said}) == want


SIZE = "kueue.x-k8s.io/pod-group-total-count"


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param(
            {"labels": KUEUE, "annotations": {SIZE: "many"}},
            f"annotation {SIZE} 'many' is no number: pods that come together are the gang",
            id="no number",
        ),
        pytest.param(
            {"labels": KUEUE, "annotations": {SIZE: "0"}},
            f"annotation {SIZE} '0' is no number: pods that come together are the gang",
            id="none",
        ),
        pytest.param(
            {"labels": {"ray.io/cluster": "r"}, "annotations": {SIZE: "9" * 100_000}},
            f"annotation {SIZE} '99999999999…' is no number: its object says how many pods it has",
            id="too long, of a gang with an object",
        ),
        pytest.param(
            {"annotations": ASKED},
            "annotation fairgate.dev/gang is ignored: the pod has no controller and no mark of a gang",
            id="a pod alone",
        ),
        pytest.param({"labels": KUEUE, "annotations": {SIZE: "4"}}, "", id="a number"),
        pytest.param({"labels": KUEUE}, "", id="no size"),
        pytest.param({"annotations": {SIZE: "many"}}, "", id="a size without a gang"),
        pytest.param({"annotations": ASKED, "controller": ("Job", "j")}, "", id="a controller"),
    ],
)
def test_what_is_ignored_says_what_is_assumed_instead(more, want):
    assert translated(**more).gang_problem == want
    assert len(want) <= 120, "kube-apiserver cuts longer warnings"


def test_a_name_of_any_length_is_bounded():
    found = read(annotations={"scheduling.k8s.io/group-name": "v" * 100_000})
    assert len(found.id) < 400
    assert len(found.name) < 300


@pytest.mark.parametrize("said", ["yes", "True", "", "t" * 100_000])
def test_an_annotation_that_is_no_boolean_is_refused_with_what_would_be_right(said):
    found = translated(annotations={"fairgate.dev/gang": said})
    assert isinstance(found, InvalidPod)
    assert found.problems[0].startswith("annotation fairgate.dev/gang: expected true or false, got ")
    assert len(found.problems[0]) < 2_000
    assert gang_problem(decoded(annotations=ASKED).metadata) is None


@pytest.mark.parametrize("said", ["x", "0", "-3", "2.5", "9" * 7, "y" * 100_000])
def test_a_size_that_is_no_number_is_ignored_with_what_is_assumed(said):
    found = translated(labels=KUEUE, annotations={"kueue.x-k8s.io/pod-group-total-count": said}).gang_problem
    assert found.startswith("annotation kueue.x-k8s.io/pod-group-total-count '")
    assert "is no number: " in found
    assert len(found) < 200
    assert translated(labels=KUEUE, annotations={"kueue.x-k8s.io/pod-group-total-count": "3"}).gang_problem == ""
    assert translated(annotations={"kueue.x-k8s.io/pod-group-total-count": said}).gang_problem == "", "it is in no gang"


def test_the_mark_on_a_pod_without_a_controller_is_ignored_with_a_warning():
    assert "the pod has no controller" in translated(annotations=ASKED).gang_problem
    assert translated(annotations=ASKED, controller=("Job", "sweep")).gang_problem == ""
    assert translated(annotations=ASKED, labels=KUEUE).gang_problem == ""
    assert translated(annotations={"fairgate.dev/gang": "false"}).gang_problem == ""


def test_a_pod_under_admission_and_one_that_exists_are_of_the_same_gang():
    made = decoded(labels=KUEUE, uid="u1")
    want = gang_id(made.metadata, made.spec, namespace="vision")
    assert translated(labels=KUEUE).gang.id == want
    assert to_resident(made, BUILT_IN_RESOURCES).gang == want
