"""Streams of manifests: where each document and each of its lines is, and that nothing is lost behind a broken one."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.world_file.stream import Document, Unreadable, read_stream
from webhook.yaml_text import read_documents

STREAM = b"""\
# chart
---
# Source: a.yaml
a: 1
b: {c: 2}
---
x: [
---
d:
  - e: 1
    f: 2
--- {g: 1}
---
---
text: |
  ---
  not a document
...
---
h: 1
"""


def test_documents_know_their_numbers_and_lines():
    found = list(read_stream(STREAM))
    assert [(one.number, one.line) for one in found] == [(1, 4), (2, 7), (3, 9), (4, 12), (6, 15), (7, 20)]
    assert [one.value for one in found if isinstance(one, Document)] == [
        {"a": 1, "b": {"c": 2}},
        {"d": [{"e": 1, "f": 2}]},
        {"g": 1},
        {"text": "---\nnot a document\n"},
        {"h": 1},
    ]
    assert [one.problem for one in found if isinstance(one, Unreadable)] == [
        "did not find expected node content while parsing a flow node"
    ]


def test_keys_and_elements_know_their_lines():
    deep = next(one for one in read_stream(STREAM) if isinstance(one, Document) and "d" in one.value)
    elements = deep.value["d"]
    assert deep.line_of(deep.value, "d") == 9
    assert deep.line_of(elements, 0) == 10
    assert deep.line_of(elements[0], "f") == 11
    assert deep.line_of(elements[0], "g") is None


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (b"", []),
        (b"# nothing\n", []),
        (b"%YAML 1.2\n---\na: 1\n", [{"a": 1}]),
        (b"---\r\na: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1".encode(), [{"a": 1}]),
        ("a: é".encode("utf-16"), [{"a": "é"}]),
        (b'{\n\t"a": [1,\n\t2]\n}', [{"a": [1, 2]}]),
        (rb'{"a": "\ud83d\ude00"}', [{"a": "\N{GRINNING FACE}"}]),
    ],
    ids=["empty", "comment", "directive", "Windows", "UTF-8 mark", "UTF-16", "JSON with tabs", "JSON with escapes"],
)
def test_yaml_of_people_and_tools_is_read(content, want):
    assert [one.value for one in read_stream(content)] == want


@given(st.binary(max_size=200) | st.text(alphabet="-a: \n[]{}&*!|>'\"#%\t\r", max_size=80).map(str.encode))
def test_no_bytes_raise_an_error(content):
    for one in read_stream(content):
        assert 1 <= one.line <= content.count(b"\n") + content.count(b"\r") + 1
        assert isinstance(one, Document) or one.problem


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(max_size=5), min_size=1), max_size=5))
def test_a_stream_reads_as_its_documents_do(values):
    content = yaml.safe_dump_all(values).encode()
    assert [one.value for one in read_stream(content)] == list(read_documents(content))
