"""Statements: one renderer, facts for JSON, and what is read back."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.core.model.amounts import ONE_GPU, UNLIMITED, ResourceName
from webhook.core.model.reasons import (
    MAX_DEPTH,
    Resource,
    Statement,
    compared,
    facts_json,
    read_statement,
    statement_json,
)

GPU = Resource(ResourceName("nvidia.com/gpu"), 8)
MEMORY = Resource(ResourceName("memory"), 64 << 30)


@pytest.mark.parametrize(
    ("words", "fact", "want"),
    [
        ("{x}", 1000, "1000"),
        ("{x:,}", 1000, "1,000"),
        ("{x:node}", 1, "1 node"),
        ("{x:node}", 2000, "2,000 nodes"),
        ("{x:place}", 12, "12th in the queue"),
        ("{x:duration}", 5400, "1h30m"),
        ("{x:gpus}", ONE_GPU // 2, "0.5"),
        ("{x:gpus}", Fraction(ONE_GPU, 81_921), "less than 0.001"),
        ("{x:GPUs}", ONE_GPU, "1 GPU"),
        ("{x:limit}", UNLIMITED, "unlimited"),
        ("{x}", GPU, "nvidia.com/gpu 8"),
        ("{x:bare}", MEMORY, "64Gi"),
        ("{x}", (GPU, MEMORY), "nvidia.com/gpu 8, memory 64Gi"),
        ("{x:and}", ("a", "b"), "a and b"),
        ("{x:;}", ("a", Statement("b {n}", {"n": 1})), "a; b 1"),
        ("{x:quoted}", "a'b", '"a\'b"'),
        ("{x}", "a\nb\x1b[2J", r"a\nb\x1b[2J"),
        ("{x}", "{y}", "{y}"),
    ],
)
def test_a_fact_is_written_as_its_place_says(words, fact, want):
    assert Statement(words, {"x": fact}).text == want


def test_words_without_facts_are_the_text():
    assert Statement("as it is").text == "as it is"


def test_equal_statements_say_the_same_and_their_kind_leaves_out_numbers():
    one, other = (Statement("{team} holds {taken:gpus}", {"team": "a", "taken": taken}) for taken in (1, 2))
    assert one != other
    assert one.kind == other.kind
    assert one.kind != one.with_facts(team="b").kind
    wrapped = [Statement("{cause}; {place:place}", {"cause": each, "place": 1}) for each in (one, other)]
    assert wrapped[0].kind == wrapped[1].kind


def test_facts_for_json_are_plain_and_exact():
    held = Statement("{subject} holds {taken:gpus} of {limit:limit}", {"subject": "a", "taken": 1, "limit": UNLIMITED})
    said = Statement("{held:and}; {free}", {"held": (held,), "free": GPU})
    assert facts_json(said) == {
        "held": [{"subject": "a", "taken": "1/840000", "limit": "unlimited"}],
        "free": {"resource": "nvidia.com/gpu", "amount": 8},
    }


TEXTS = st.text(max_size=8)
LEAVES = st.one_of(
    st.builds(lambda x: Statement("a {x} b", {"x": x}), st.one_of(TEXTS, st.integers(0, 10**9))),
    st.builds(lambda x: Statement("{x:gpus} of {y:limit}", {"x": x, "y": UNLIMITED}), st.fractions(0, 10**9)),
    st.builds(lambda x: Statement("{x:pod}", {"x": x}), st.integers(0, 10**9)),
    st.builds(lambda x: Statement("{x}", {"x": Resource(ResourceName("r"), x)}), st.integers(0, 10**9)),
    st.builds(
        lambda x, y: Statement("{x}", {"x": compared(ResourceName("memory"), x, y)}), *[st.integers(0, 1 << 44)] * 2
    ),
)
STATEMENTS = st.recursive(
    LEAVES,
    lambda each: st.builds(
        lambda x, y: Statement("{x}: {y:;}", {"x": x, "y": y}), each, st.lists(each, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@examples()
@given(STATEMENTS)
def test_a_statement_that_is_written_is_read_back_as_it_was(said):
    found = read_statement(statement_json(said))
    if found is not None:  # deeper than anything that is written
        assert found == said
        assert found.text == said.text


def nested(depth):
    said = Statement("end")
    for _ in range(depth):
        said = Statement("{a}", {"a": said})
    return statement_json(said)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"words": 1},
        {"words": "{a}"},
        {"words": "{a", "facts": {"a": 1}},
        {"words": "{a.b}", "facts": {"a": 1}},
        {"words": "{a[0]}", "facts": {"a": [1]}},
        {"words": "{}", "facts": {"a": 1}},
        {"words": "{a:gpus}", "facts": {"a": "many"}},
        {"words": "{a:gpus}", "facts": {"a": "9" * 101}},
        {"words": "{a}", "facts": {"a": 1.5}},
        {"words": "{a}", "facts": {"a": None}},
        {"words": "{a}", "facts": [1]},
        {"words": "{a:node}", "facts": {"a": [1]}},
        {"words": "{a}", "facts": {"a": {"resource": "x"}}},
        {"words": "{a}{a}", "facts": {"a": "x"}},
        {"words": "\x1b[2J", "facts": {}},
        {"words": "{a}", "facts": {"a": ["x"] * 100}},
        nested(MAX_DEPTH + 1),
    ],
)
def test_what_is_no_statement_or_too_large_is_not_read(data):
    assert read_statement(data) is None
