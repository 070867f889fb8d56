"""Leases: a record is read back as written, and a patch names the version that it replaces."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.objects.events import LeaseRecord, StoredLease, lease_patch, micro_time, new_lease, read_lease

RECORDS = st.builds(LeaseRecord, st.text(), st.integers(0, 2**31 - 1), st.text(), st.text(), st.integers(0, 2**31 - 1))


@given(RECORDS)
def test_a_record_is_read_back_as_written(record):
    assert read_lease(new_lease(record, namespace="fairgate", name="leader")) == StoredLease(record, "")
    assert read_lease(lease_patch(record, version="7")) == StoredLease(record, "7")


def test_a_patch_writes_no_field_of_others():
    written = json.loads(lease_patch(LeaseRecord("one", 15), version="7"))
    assert written.keys() == {"metadata", "spec"}
    assert written["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize("spec", ["", ',"spec":null', ',"spec":{}'], ids=["no spec", "null", "an empty spec"])
def test_a_lease_created_by_hand_is_free(spec):
    found = read_lease(b'{"metadata":{"resourceVersion":"3"}%s}' % spec.encode())
    assert found == StoredLease(LeaseRecord(), "3")


def test_another_object_is_an_error():
    with pytest.raises(ValueError, match="metadata"):
        read_lease(b"{}")


def test_times_have_microseconds():
    assert micro_time(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == "2026-01-02T03:04:05.000006Z"
