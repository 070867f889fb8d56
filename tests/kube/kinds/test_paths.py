"""Paths into manifests, and counts that may be unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.core.model.policy import PodPath
from webhook.kube.kinds.model import (
    MAX_PODS,
    ONE,
    Budget,
    BudgetSpentError,
    Count,
    count_at,
    dig,
    entries,
    pods_at,
    replicated,
)

counts = st.integers(0, MAX_PODS).map(Count) | st.text(min_size=1, max_size=3).map(lambda why: Count(None, why))


@given(counts, counts)
@examples()
def test_a_combined_count_is_known_only_if_both_are(one, other):
    for made in (one.plus(other), one.times(other), one.at_least(other), one.at_most(other)):
        assert (made.number is None) is (one.number is None or other.number is None)
        assert made.problem == (one.problem if one.number is None else other.problem)


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (Count(3).plus(Count(4)), 7),
        (Count(3).times(Count(4)), 12),
        (Count(3).at_least(ONE), 3),
        (Count(3).at_most(ONE), 1),
    ],
)
def test_known_counts_are_combined(made, want):
    assert made == Count(want)


@pytest.mark.parametrize("value", [True, -1, 1.0, "3", MAX_PODS + 1, [], {}])
def test_what_is_no_number_of_pods_is_a_problem_with_its_path(value):
    number, problem = count_at({"spec": {"replicas": value}}, "spec.replicas", default=1)
    assert number is None
    assert problem.startswith(f"spec.replicas is {value!r}; expected a whole number")


def test_an_absent_number_is_the_default_or_a_problem():
    assert count_at({}, "spec.replicas", default=1) == ONE
    assert count_at({}, "replicas", default=None, named="spec.replicas") == Count(None, "spec.replicas is not set")
    assert count_at({"replicas": MAX_PODS}, "replicas", default=1) == Count(MAX_PODS)


def test_a_path_ends_where_there_is_no_object():
    document = {"spec": {"template": [1]}}
    assert dig(document, "") is document
    assert dig(document, "spec.template") == [1]
    assert dig(document, "spec.template.x") is dig(document, "status.phase") is None


def test_entries_are_named_by_key_name_group_or_position():
    listed = {"spec": {"tasks": [{"name": "a"}, {"groupName": "b"}, 3]}}
    assert [(name, where) for name, where, _ in entries(listed, "spec.tasks", Budget())] == [
        ("a", "spec.tasks[0]."),
        ("b", "spec.tasks[1]."),
        ("2", "spec.tasks[2]."),
    ]
    assert list(entries({"spec": {"roles": {"head": 1}}}, "spec.roles", Budget())) == [("head", "spec.roles.head.", 1)]
    assert list(entries({"spec": 3}, "spec", Budget())) == []
    assert list(entries({}, "", Budget())) == [("", "", {})]


def test_a_rule_multiplies_its_counts():
    rule = PodPath("template", ("replicas", "hosts"), each="groups", default=1)
    document = {"groups": [{"name": "a", "replicas": 2, "hosts": 3, "template": {"spec": {}}}, {"replicas": 2}]}
    a, other = pods_at(document, rule, Budget())
    assert (a.role, a.count, a.template) == ("a", Count(6), {"spec": {}})
    assert (other.role, other.count, other.template) == ("1", Count(2), {})


def test_a_count_less_a_number_is_at_least_zero():
    assert (Count(3).without(1), ONE.without(2)) == (Count(2), Count(0))
    assert Count(None, "not set").without(1) == Count(None, "not set")


def test_an_entry_has_its_replicas_and_its_template():
    found = replicated("worker", "spec.roles.worker.", {"replicas": -1, "template": {"spec": {}}})
    assert (found.role, found.template, found.count.number) == ("worker", {"spec": {}}, None)
    assert found.count.problem.startswith("spec.roles.worker.replicas is -1")
    assert replicated("worker", "", {}, default=0).count == Count(0)
    assert replicated("worker", "", 3).template == {}


def test_counts_stay_below_the_largest_number_of_kubernetes():
    count = Count(MAX_PODS)
    for _ in range(100):
        count = count.times(Count(MAX_PODS)).plus(count)
    assert count == Count(2**63 - 1)


def test_entries_take_steps_before_they_are_read():
    found = entries({"tasks": [{}] * 1000}, "tasks", Budget(steps=100))
    with pytest.raises(BudgetSpentError):
        list(found)


def only(document, rule):
    [found] = pods_at(document, rule, Budget())
    return found


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        (4, {"limits": {"amd.com/gpu": 4}, "requests": {"amd.com/gpu": 4}}),
        (
            {"a.com/b": 1, "cpu": 2, "note": 3},
            {"limits": {"a.com/b": 1, "cpu": 2}, "requests": {"a.com/b": 1, "cpu": 2}},
        ),
        ({"limits": {"gpu": 2, "gpuType": "a.com/b"}}, {"limits": {"a.com/b": 2}, "requests": {}}),
        ({"gpu": 2, "gpuType": 3}, {"limits": {"amd.com/gpu": 2}, "requests": {"amd.com/gpu": 2}}),
        ({"limits": "many"}, {"limits": {}, "requests": {}}),
    ],
)
def test_a_kind_without_pods_says_what_they_request(resources, want):
    rule = PodPath(resources="spec.resources", counted="amd.com/gpu")
    [container] = only({"spec": {"resources": resources}}, rule).template["spec"]["containers"]
    assert container["resources"] == want


def test_a_rule_whose_resources_are_not_there_finds_unknown_pods():
    assert only({}, PodPath(resources="spec.gpus")).count == Count(None, "spec.gpus is not set")
    assert list(pods_at({}, PodPath(resources="spec.gpus", is_optional=True), Budget())) == []


def test_a_rule_reads_from_the_object_what_is_not_in_its_entries():
    rule = PodPath(
        "pod",
        ("size-1", "$.replicas"),
        "{name}-worker",
        each="groups",
        default=1,
        fields=(("schedulerName", "$.scheduler"), ("tolerations", "tolerations")),
    )
    document = {"replicas": 3, "scheduler": "s", "groups": [{"name": "a", "size": 3, "pod": {"containers": []}}]}
    found = only(document, rule)
    assert (found.role, found.count) == ("a-worker", Count(6))
    assert found.template["spec"] == {"schedulerName": "s", "containers": []}


@pytest.mark.parametrize(
    ("scaler", "want"),
    [({"max": 5}, 5), ({"max": 1}, 2), ({"max": 5, "enabled": False}, 2), ({}, 2), ({"max": "x"}, None), ("x", 2)],
)
def test_a_rule_counts_an_autoscalers_maximum(scaler, want):
    rule = PodPath("pod", ("replicas",), maximum="scaler.max")
    assert only({"replicas": 2, "pod": {}, "scaler": scaler}, rule).count.number == want


def test_an_optional_rule_finds_no_pods_where_none_are_wanted():
    rule = PodPath("pod", ("size-1",), is_optional=True)
    assert list(pods_at({"size": 1, "pod": {"spec": {}}}, rule, Budget())) == []
    assert list(pods_at({}, rule, Budget())) == list(pods_at({}, PodPath("pod", is_optional=True), Budget())) == []
    assert only({"size": 2}, rule).template == {}, "pods are wanted, and unknown"
    assert only({"size": 2, "pod": {"spec": {}}}, rule).count == ONE
