"""Scalars of manifests, against what kubectl makes of them (tests/cases/kubectl_yaml.json, test_kubectl_yaml.py)."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.yaml_text import DocumentError, key_text, read_documents, resolved, tagged, to_yaml


def as_kubernetes_keeps(digits):
    """Return an integer as Kubernetes keeps it: those beyond 64 bits are floats."""
    return int(digits) if -(2**63) <= int(digits) < 2**63 else float(digits)


KUBECTL = json.loads((Path(__file__).parent / "cases" / "kubectl_yaml.json").read_text(), parse_int=as_kubernetes_keeps)


@pytest.mark.parametrize(("text", "want"), KUBECTL["values"].items())
def test_a_scalar_is_read_as_kubectl_reads_it(text, want):
    [found] = read_documents(f"v: {text}\n".encode())
    assert found == {"v": want}
    assert type(found["v"]) is type(want)


@pytest.mark.parametrize("text", KUBECTL["refused"])
def test_what_kubectl_refuses_is_refused(text):
    with pytest.raises(DocumentError):
        list(read_documents(f"v: {text}\n".encode()))


@pytest.mark.parametrize(("text", "want"), KUBECTL["keys"].items())
def test_a_key_is_the_text_that_kubectl_makes_of_it(text, want):
    assert list(read_documents(f"{{{text}: x}}".encode())) == [{want: "x"}]


@given(st.text(alphabet="0123456789abefxobi_.+-eEyYnNrulst~ <:", max_size=8) | st.text(max_size=6))
def test_texts_that_are_written_are_read_back_as_text_by_every_yaml(text):
    written = to_yaml({"v": [text]})
    assert list(read_documents(written.encode())) == [{"v": [text]}] == [yaml.safe_load(written)]


@given(st.text(alphabet="0123456789abcdefxXoOB_.+-eE", max_size=80))
def test_no_text_raises_and_values_are_json(text):
    value = resolved(text)
    assert isinstance(value, str | bool | int | float | None)
    assert not isinstance(value, int) or abs(value) <= 2**63
    assert key_text(value) is None or isinstance(key_text(value), str)


def test_a_tag_that_is_unknown_or_does_not_fit_is_a_value_error():
    for tag in ("tag:yaml.org,2002:binary", "!own"):
        with pytest.raises(ValueError, match="constructor"):
            tagged("x", tag)
    with pytest.raises(ValueError, match="cannot decode 'on' as int"):
        tagged("on", "tag:yaml.org,2002:int")


@examples(100)
@given(st.text(alphabet=st.sampled_from("a\u202eé\n\x85\u2028\U000e0001\xa0: -'\"\\#")))
def test_what_a_terminal_would_interpret_is_escaped_and_read_back(text):
    written = to_yaml({"name": text, text: 1})
    assert written.replace("\n", "").isprintable()
    assert yaml.safe_load(written) == {"name": text, text: 1}
