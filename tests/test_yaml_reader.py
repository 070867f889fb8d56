"""The YAML reader, as manifests and as policy files use it: what is read, and what must not bring the process down."""

import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.realistic import realistic_pod
from webhook.policy import documents
from webhook.yaml_text import DocumentError, Dumper, Lines, Reader, read_documents

KEYS = st.text(alphabet="ab~ntfo-1.", min_size=1, max_size=6)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e9, 1e9, width=32) | st.text(max_size=12)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@given(VALUES, st.booleans())
def test_every_dumped_value_is_read_back(value, flow):
    text = yaml.dump(value, Dumper=Dumper, default_flow_style=flow)
    assert list(read_documents(text.encode())) == [value]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("9" * 5000, "9" * 5000),
        ("", None),
        ("{a: , b: ~}", {"a": None, "b": None}),
        ("[&x {a: 1}, *x]", [{"a": 1}, {"a": 1}]),
        ("[&x {a: 1, b: 2}, {<<: *x, a: 3}]", [{"a": 1, "b": 2}, {"a": 3, "b": 2}]),
        ("[&x {a: 1}, &y {a: 2, b: 2}, {<<: [*x, *y]}]", [{"a": 1}, {"a": 2, "b": 2}, {"a": 1, "b": 2}]),
    ],
)
def test_scalars_aliases_and_merges(text, want):
    found = list(read_documents(f"--- {text}\n".encode()))
    assert found == [want]
    assert type(found[0]) is type(want)


def bomb():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["l0: &l0 [x]", *levels])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[" * 200_000, f"nested more than {Reader.most_levels} levels deep, in line 1, column 101"),
        ("\n".join(" " * n + "a:" for n in range(3000)), "nested more than"),
        ("- " * 5000, "nested more than"),
        ("{" * 50_000, "nested more than"),
        (bomb(), "aliases repeat more than 1,000,000 values"),
        ("&a [*a]", "undefined alias a"),
        ("[*b]", "undefined alias b"),
        ("? [a]\n: b", "a key must be text"),
        ("{~: a}", "a key must be text"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor for the tag"),
        ("!!binary aGVsbG8=", "could not determine a constructor for the tag"),
        ("a: [", "did not find expected node content"),
        ("a: \x00", "control characters are not allowed"),
    ],
    ids=lambda value: value[:20],
)
def test_unreadable_documents_are_refused_quickly_with_a_message(text, want):
    began = time.thread_time()
    with pytest.raises(DocumentError) as refused:
        list(read_documents(text.encode()))
    assert time.thread_time() - began < 20
    assert want in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a: 1\nb: \x07", "control characters are not allowed"),
        ("a:\n- &x 1\nb: [", "did not find expected node content while parsing a flow node"),
        ("a: 1\n]", "did not find expected key while parsing a block mapping"),
    ],
    ids=["a control character", "an open list at the end of the file", "a bracket too many"],
)
def test_manifests_and_policies_report_the_same_problem_of_a_line(text, want):
    last = text.count("\n") + 1
    with pytest.raises(DocumentError) as refused:
        list(read_documents(text.encode()))
    assert (refused.value.line, refused.value.problem) == (last, want)
    found = documents.read_documents({"a.yaml": text.encode()}).problems
    assert list(map(str, found)) == [f"a.yaml:{last}: not valid YAML: {want}"]


@given(VALUES.filter(lambda value: value is not None), st.booleans())
def test_manifests_and_policies_are_read_alike_with_the_same_lines(value, flow):
    content = yaml.dump(value, Dumper=Dumper, default_flow_style=flow).encode()
    lines: Lines = {}
    manifest = next(read_documents(content, lines=lines))
    reading = documents.read_documents({"a.yaml": content})
    if not reading.problems:  # a policy's keys must not look like numbers
        (policy,) = reading.documents
        assert policy.value == manifest == value
        assert sorted(policy.lines.values()) == sorted(lines.values())


def read_as_policy(text):
    reading = documents.read_documents({"a.yaml": text.encode()})
    return [one.value for one in reading.documents], list(map(str, reading.problems))


@pytest.mark.parametrize(
    ("text", "want", "problems"),
    [
        ("a: [1e999, .inf, 1234567890123456789]", {"a": [float("inf"), float("inf"), 1234567890123456789]}, []),
        ("a: !!str 1\nb: ! 2", {"a": "1", "b": 2}, []),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}, []),
        ("a: 1\n? [b, !foo c]\n: !foo x\nd: 2", {"a": 1, "d": 2}, ["a.yaml:2: a key must be text"]),
        (
            "a: {1: !foo x, b: !!int y}",
            {"a": {"b": None}},
            [
                'a.yaml:1: a: a key must be text; quote it: "1"',
                'a.yaml:1: a.b: expected a number, got "y"',
            ],
        ),
        ("a: 1\na: {b: !foo x}", {"a": 1}, ["a.yaml:2: a: appears twice, first on line 1; keep one"]),
        ("a: " + "9" * 5000, {"a": None}, [f'a.yaml:1: a: expected a number, got "{"9" * 57}..."']),
    ],
    ids=["numbers", "tags", "an anchor set again", "a list as key", "a number as key", "a key again", "many digits"],
)
def test_reading_a_policy_continues_after_forbidden_syntax(text, want, problems):
    assert read_as_policy(text) == ([want], problems)


def test_an_exceeded_bound_ends_a_policy_file_and_keeps_what_came_before():
    deep = "a: 1\n---\n" + "[" * 33 + "]" * 33
    assert read_as_policy(deep) == ([{"a": 1}], ["a.yaml:3: nested more than 32 levels deep"])
    assert read_as_policy("[" * 32 + "]" * 32)[1] == []


@pytest.mark.parametrize("more", [0, 1])
def test_values_of_a_policy_are_counted_with_those_of_aliases_and_without_keys(more):
    pairs = {f"k{number}": 1 for number in range(49_997 + more)}  # with the mapping and two lists of 25,001: 100,000
    text = "{a: &x [" + "1," * 25_000 + "], b: *x, " + json.dumps(pairs)[1:]
    want = ["a.yaml:1: more than 100,000 values, aliases included; split the file"] * more
    assert read_as_policy(text)[1] == want


def test_lines_of_a_policy_are_those_of_keys_and_elements_even_of_aliases():
    (read,) = documents.read_documents({"a.yaml": b"\na: &x\n  b: 1\nc:\n- 2\n- *x\n"}).documents
    paths = [(), ("a",), ("a", "b"), ("a", "z"), ("c", 0), ("c", 1), ("c", 1, "b"), ("c", 9), ("z",)]
    assert [read.line(path) for path in paths] == [2, 2, 3, 2, 5, 6, 3, 4, 2]


@given(st.binary(max_size=60) | st.text(alphabet="[]{}:,-&*a!'\"|>\n ", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(content):
    reading = documents.read_documents({"a.yaml": content})
    try:
        manifests = list(read_documents(content))
    except DocumentError:
        assert reading.problems
    else:
        json.dumps(manifests)
        filled = [shape(each) for each in manifests if each is not None]
        assert reading.problems or [shape(policy.value) for policy in reading.documents] == filled


def shape(value):
    """A value without its scalars, which policies and manifests read by different versions of YAML."""
    match value:
        case dict():
            return {number: shape(each) for number, each in enumerate(value.values())}
        case list():
            return [shape(each) for each in value]
        case _:
            return "a scalar"


def test_output_of_kubectl_is_read_as_pyyaml_reads_it():
    items = [b.node(f"n{i}") for i in range(3)] + [realistic_pod(index=i) for i in range(3)]
    text = yaml.safe_dump_all([{"apiVersion": "v1", "items": items, "kind": "List"}, {}, None])
    assert list(read_documents(text.encode())) == list(yaml.safe_load_all(text))
