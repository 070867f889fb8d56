"""Values of untyped manifests are read as what they should be, or as nothing."""

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.kube.kinds.model import digits, listed, mapping, scalar, shown, text

anything = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none()) | st.just({"a": 1})


@given(anything)
@examples()
def test_each_reads_its_own_type_and_nothing_else(value):
    read = {dict: mapping(value), str: text(value), list: listed(value)}
    for kind, found in read.items():
        assert found == (value if isinstance(value, kind) else kind())


def test_any_mapping_will_do():
    assert mapping(MappingProxyType({"a": 1})) == {"a": 1}


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("a", "a"),
        (5, "5"),
        (True, "true"),
        (False, "false"),
        (2**63 - 1, str(2**63 - 1)),
        (2**63, None),
        pytest.param(10**5000, None, id="a number of 5,000 digits"),
        (1.5, None),
        (None, None),
        ([], None),
    ],
)
def test_a_scalar_is_what_one_would_write(value, want):
    assert scalar(value) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("007", 7),
        (5, 5),
        ("1234567", 1234567),
        ("12345678", None),
        (-1, None),
        ("-1", None),
        ("1.0", None),
        ("\u0663", None),
        ("", None),
        (True, None),
        (None, None),
    ],
)
def test_digits_are_a_number_up_to_a_length(value, want):
    assert digits(value, most=7) == want
    assert digits("9" * 5000) is None


def test_any_value_is_shown_in_a_few_characters():
    for value in ("x" * 10**6, list(range(10**6)), {"a": [1]}, 10**5000, -(10**5000), 1.5, None, -3):
        assert len(shown(value)) < 70


def test_what_is_shown_is_what_was_written():
    assert [shown(value) for value in ("a", 3, True, [], {}, [1])] == ["'a'", "3", "True", "[]", "{}", "a list"]
