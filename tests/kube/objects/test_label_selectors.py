"""Label selectors of the API as core selectors: the same pods, or none where they cannot be evaluated."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.objects import bounds
from webhook.kube.objects.bounds import Selector, to_selector


def translated(**written):
    return to_selector(msgspec.convert(written, Selector))


@pytest.mark.parametrize(
    ("written", "labels", "want"),
    [
        pytest.param({"matchLabels": {"app": "web"}}, {"app": "web", "x": "y"}, True, id="a label"),
        pytest.param({"matchLabels": {"app": "web"}}, {"app": "db"}, False, id="another value"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True, id="a key"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, {}, True, id="no such key"
        ),
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "old", "operator": "Exists"}]},
            {"app": "web"},
            False,
            id="one of two",
        ),
        pytest.param({}, {"any": "thing"}, True, id="an empty selector selects everything"),
    ],
)
def test_a_selector_selects_as_in_kubernetes(written, labels, want):
    assert translated(**written).matches(labels) is want


@given(st.permutations(["a", "b", "c"]), st.permutations(["a", "b", "c"]))
def test_equal_selectors_are_equal_in_any_order(first, second):
    one, other = (
        translated(matchExpressions=[{"key": key, "operator": "Exists"} for key in keys]) for keys in (first, second)
    )
    assert one == other


@pytest.mark.parametrize(
    "written",
    [
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        {"matchLabels": {f"k{number}": "" for number in range(bounds.LABEL_SELECTOR_PARTS + 1)}},
        {"matchLabels": {"a": "x" * bounds.LABEL_SELECTOR_BYTES}},
    ],
    ids=["an operator of node affinity", "too many parts", "too much text"],
)
def test_a_selector_that_is_not_evaluated_is_none(written):
    assert translated(**written) is None
