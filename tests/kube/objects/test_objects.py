"""Decoding errors as users read them, and parts that stay raw."""

import msgspec
import pytest

from tests import builders as b
from webhook.kube.objects import objects

PODS = msgspec.json.Decoder(objects.Pod)


def error_of(manifest):
    with pytest.raises(msgspec.ValidationError) as caught:
        PODS.decode(b.encode(manifest))
    return caught.value


def test_an_error_is_described_by_path_and_problem():
    error = error_of(b.pod(containers=[{"name": 3}]))
    assert objects.describe(error) == "spec.containers[0].name: expected str, got int"
    assert objects.describe(error, under="request.object") == (
        "request.object.spec.containers[0].name: expected str, got int"
    )


def test_an_abbreviation_keeps_its_case():
    with pytest.raises(msgspec.DecodeError) as caught:
        PODS.decode(b"{,")
    assert objects.describe(caught.value).startswith("JSON is malformed")


def test_deep_nesting_is_described():
    assert objects.describe(RecursionError(), under="spec.affinity") == "spec.affinity: nested too deeply"
    assert objects.describe(RecursionError()) == "nested too deeply"


def test_shared_parts_stay_raw_and_absent_ones_are_known_by_their_bytes():
    found = PODS.decode(b.encode(b.pod(affinity={"nodeAffinity": {}}, tolerations=None)))
    assert bytes(found.spec.affinity) == b'{"nodeAffinity":{}}'
    assert {bytes(found.spec.tolerations), bytes(found.spec.overhead)} == objects.ABSENT


DECODER = msgspec.json.Decoder(list[int])


def test_a_part_is_read_or_absent():
    assert objects.read_part(DECODER, b"[1]", where="spec.x") == [1]
    assert all(objects.read_part(DECODER, raw, where="spec.x") is None for raw in objects.ABSENT)


@pytest.mark.parametrize("raw", [b"[", b'["x"]', b'"\xff"', b"[" * 100_000])
def test_a_malformed_part_is_a_value_error_with_its_path(raw):
    with pytest.raises(ValueError, match=r"^spec\.x"):
        objects.read_part(DECODER, raw, where="spec.x")
