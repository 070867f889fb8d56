"""Files in a Secret: read back as written, beside fields that others set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.objects.objects import files_of, new_secret, with_files

FILES = st.dictionaries(st.text(min_size=1), st.binary())


@given(FILES, FILES)
def test_files_are_read_back_as_written(first, second):
    made = new_secret("certificates", first)
    assert files_of(made) == first
    assert files_of(with_files(made, second)) == second


def test_other_fields_stay():
    stored = {"metadata": {"resourceVersion": "7", "labels": {"a": "b"}}, "type": "Opaque", "data": {"old": ""}}
    assert with_files(stored, {"tls.crt": b"x"}) == {**stored, "data": {"tls.crt": "eA=="}}


def test_a_secret_without_data_has_no_files_and_broken_data_is_an_error():
    assert files_of({}) == files_of({"data": None}) == {}
    with_error = {"data": {"tls.crt": "not base64"}}
    with pytest.raises(ValueError, match="base64"):
        files_of(with_error)
