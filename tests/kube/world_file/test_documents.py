"""YAML documents by events: what they mean, and what must not bring the process down."""

import json
import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.realistic import realistic_pod
from webhook.kube.world_file.documents import MOST_LEVELS, DocumentError, read_documents

KEYS = st.text(alphabet="ab~ntfo-1.", min_size=1, max_size=6)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e9, 1e9, width=32) | st.text(max_size=12)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@given(VALUES, st.booleans())
def test_whatever_is_dumped_is_read_back(value, flow):
    text = yaml.safe_dump(value, default_flow_style=flow)
    assert list(read_documents(text.encode())) == [value]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("on", "on"),
        ("'1'", "1"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("0x1F", "0x1F"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("9" * 5000, "9" * 5000),
        ("1e999", "1e999"),
        (".nan", ".nan"),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("-7", -7),
        ("", None),
        ("{a: , b: ~}", {"a": None, "b": None}),
        ("{1: x, on: y, null: z}", {"1": "x", "on": "y", "null": "z"}),
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
        ("[" * 200_000, f"nested more than {MOST_LEVELS} levels deep, in line 1, column 101"),
        ("\n".join(" " * n + "a:" for n in range(3000)), "nested more than"),
        ("- " * 5000, "nested more than"),
        ("{" * 50_000, "nested more than"),
        (bomb(), "aliases repeat more than 1,000,000 values"),
        ("&a [*a]", "undefined alias a"),
        ("[*b]", "undefined alias b"),
        ("? [a]\n: b", "a key must be text"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor for the tag"),
        ("!!binary aGVsbG8=", "could not determine a constructor for the tag"),
        ("a: [", "did not find expected node content"),
        ("a: \x00", "control characters are not allowed"),
    ],
    ids=lambda value: value[:20],
)
def test_what_cannot_be_read_is_refused_quickly_and_in_words(text, want):
    began = time.thread_time()
    with pytest.raises(DocumentError) as refused:
        list(read_documents(text.encode()))
    assert time.thread_time() - began < 20
    assert want in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=60) | st.text(alphabet="[]{}:,-&*a!'\"|>\n ", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(content):
    with suppress(DocumentError):
        json.dumps(list(read_documents(content)))


def test_what_kubectl_prints_is_read_as_pyyaml_reads_it():
    items = [b.node(f"n{i}") for i in range(3)] + [realistic_pod(index=i) for i in range(3)]
    text = yaml.safe_dump_all([{"apiVersion": "v1", "items": items, "kind": "List"}, {}, None])
    assert list(read_documents(text.encode())) == list(yaml.safe_load_all(text))
