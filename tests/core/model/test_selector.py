"""Selectors, terms, taints and tolerations against a plain reference."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import requirement
from webhook.core.model.constraints import (
    HELD,
    Constraints,
    Effect,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
    integer,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("12", 12),
        ("-4", -4),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("1_000", None),
        (" 1", None),
        ("+-1", None),
        ("\u0661", None),
        ("", None),
        ("9" * 100_000, None),
    ],
)
def test_integers_are_those_of_kubernetes(text, want):
    assert integer(text) == want


KEYS, TEXTS = ["zone", "size", "gone"], ["a", "b", "12", "7", "-3", "x1"]
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.GT, Operator.LT]),
        st.sampled_from(TEXTS).map(lambda text: (text,)),
    ),
)
FIELDS = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sampled_from(["n0", "n1"]).map(lambda name: (name,)),
)
TERMS = st.builds(NodeTerm, st.lists(REQUIREMENTS, max_size=2).map(tuple), st.lists(FIELDS, max_size=1).map(tuple))
TAINTS = st.builds(
    Taint, st.sampled_from(["gpu", "dedicated", HELD]), st.sampled_from(Effect), st.sampled_from(["", "x", "3", "7"])
)
TOLERATIONS = st.one_of(
    st.builds(
        Toleration,
        st.sampled_from(["gpu", "dedicated", HELD]),
        st.booleans(),
        st.sampled_from(["", "x", "5"]),
        st.none() | st.sampled_from(Effect),
        st.sampled_from([None, Operator.GT, Operator.LT]),
    ),
    st.builds(lambda effect: Toleration(exists=True, effect=effect), st.none() | st.sampled_from(Effect)),
)
CONSTRAINTS = st.builds(
    Constraints,
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(TEXTS), max_size=1).map(lambda found: tuple(found.items())),
    st.none() | st.lists(TERMS, max_size=2).map(tuple),
    st.lists(TOLERATIONS, max_size=2).map(tuple),
)
NODE_LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(TEXTS))


def number(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def meets(each, labels):
    """The operators, from the documentation of Kubernetes."""
    has, value = each.key in labels, labels.get(each.key, "")
    have, bound = number(value), number(each.values[0]) if each.values else None
    compares = None not in (have, bound)
    return {
        "In": has and value in each.values,
        "NotIn": value not in each.values or not has,
        "Exists": has,
        "DoesNotExist": not has,
        "Gt": compares and have > bound,
        "Lt": compares and have < bound,
    }[each.operator]


def tolerated(taint, tolerations):
    for each in tolerations:
        has_key = each.key == taint.key or (not each.key and each.exists and taint.key != HELD)
        if each.bound is None:
            has_value = each.exists or each.value == taint.value
        else:
            has_value = meets(Requirement(each.key, each.bound, (each.value,)), {each.key: taint.value})
        if has_key and each.effect in (None, taint.effect) and has_value:
            return True
    return False


@given(CONSTRAINTS, st.sampled_from(["n0", "n1"]), NODE_LABELS, st.lists(TAINTS, max_size=2).map(tuple))
def test_constraints_admit_the_nodes_of_a_plain_reference(constraints, name, labels, taints):
    selected = all(labels.get(key) == value for key, value in constraints.node_selector)
    allowed = constraints.terms is None or any(
        (term.labels or term.fields)
        and all(meets(each, labels) for each in term.labels)
        and all(meets(each, {"metadata.name": name}) for each in term.fields)
        for term in constraints.terms
    )
    kept_off = [taint for taint in taints if taint.effect is not Effect.PREFER_NO_SCHEDULE]
    want = selected and allowed and all(tolerated(taint, constraints.tolerations) for taint in kept_off)
    assert constraints.admits(name, labels, taints) is want


@given(CONSTRAINTS, REQUIREMENTS, st.sampled_from(["n0", "n1"]), NODE_LABELS)
def test_a_joined_requirement_holds_besides_the_others(constraints, more, name, labels):
    want = constraints.admits(name, labels, ()) and more.matches(labels)
    assert constraints.joined(requirements=(more,)).admits(name, labels, ()) is want


@given(CONSTRAINTS, st.sampled_from(["n0", "n1"]), NODE_LABELS, st.sampled_from(KEYS))
def test_a_demanded_value_is_on_every_node_that_is_admitted(constraints, name, labels, key):
    if constraints.admits(name, labels, ()):
        assert constraints.demanded(key) in (None, labels.get(key))
        possible = constraints.possible(key)
        assert not possible or labels.get(key) in possible
        assert constraints.named_node in (None, name)


def test_the_choice_of_the_webhook_is_taken_off_and_what_the_user_wrote_stays():
    zone, chosen = requirement("zone", "In", "a"), requirement("metadata.name", "In", "n0")
    own = requirement("metadata.name", "NotIn", "n9")
    written = Constraints(terms=(NodeTerm((zone,), (own, chosen)),))
    assert written.without_choice(["n0", "n1"]) == Constraints(terms=(NodeTerm((zone,), (own,)),))
    assert Constraints(terms=(NodeTerm((), (chosen,)),)).without_choice(["n0"]) == Constraints()


def test_text_of_any_length_is_not_kept_in_a_cache():
    assert Constraints(node_selector=(("zone", "a"),)).is_small
    assert not Constraints(node_selector=(("zone", "a" * 10_000),)).is_small


@pytest.mark.parametrize(
    ("bound", "value", "want"),
    [
        (Operator.LT, "50", True),
        (Operator.LT, "20", False),
        (Operator.GT, "10", True),
        (Operator.GT, "20", False),
        (Operator.LT, "many", False),
        (Operator.LT, "9" * 5000, False),
    ],
)
def test_a_toleration_of_numbers_compares_the_taints_with_its_own(bound, value, want):
    toleration = Toleration("risk", value=value, bound=bound)
    assert toleration.tolerates(Taint("risk", Effect.NO_SCHEDULE, "20")) is want
    assert not toleration.tolerates(Taint("risk", Effect.NO_SCHEDULE, "high"))
    assert not toleration.tolerates(Taint("other", Effect.NO_SCHEDULE, "20"))
