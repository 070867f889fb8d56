"""Reports as they are written and read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.kube.ledger.reports import (
    MAX_TEXT_CHARACTERS,
    PolicyReport,
    ReplicaReport,
    decode,
    new_report,
    read_at,
    replica_patch,
    report_patch,
    shortened,
    written_at,
)

REPLICA = ReplicaReport("server", "2026-01-01T00:00:00Z", "1.0", "p1", "enforce", not_ready=["world: silent"])


def test_a_new_report_is_read_back_without_the_entries_that_are_gone():
    body = new_report("replicas", replica_patch("host_1", REPLICA, gone=["host_0"]))
    assert json.loads(body)["metadata"] == {"name": "replicas"}
    assert decode(body).replicas == {"host_1": REPLICA}
    policy = PolicyReport("p1", "enforce", "teams: []\n")
    assert decode(new_report("policy", report_patch("policy", policy))).policy == policy


def test_a_patch_removes_entries_by_null():
    patch = replica_patch("host_1", None, gone=["host_0"])
    assert patch["replicas"] == {"host_0": None, "host_1": None}
    assert patch["metadata"]["managedFields"] == [{}], "the API server is to store none"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"replicas": 3}', b'{"policy": {"hash": "p1"}}'])
def test_what_is_no_report_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"\w"):
        decode(body)


@given(st.integers(0, 253_402_300_799), st.floats(0, 0.99))
@examples()
def test_times_keep_their_second(seconds, fraction):
    assert read_at(written_at(seconds)) == seconds
    assert written_at(seconds) <= written_at(seconds + fraction)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01", "2026-13-01T00:00:00Z"])
def test_a_malformed_time_is_none(text):
    assert read_at(text) is None


@pytest.mark.parametrize("beyond", range(-2, 3))
def test_only_long_texts_are_cut(beyond):
    text = "é" * (MAX_TEXT_CHARACTERS + beyond)
    cut = shortened(text)
    assert len(cut) == min(len(text), MAX_TEXT_CHARACTERS)
    assert (cut == text) is (beyond <= 0)
    assert cut.removesuffix("…") == text[: len(cut) - (beyond > 0)]
