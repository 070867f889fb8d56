"""Reviews of any kind of object: the checks that all of them share."""

import msgspec
import pytest

from tests.builders import encode
from webhook.kube.admission.reviews import ObjectReview, RequestFields, ReviewError, TooLargeError, read_request
from webhook.kube.objects.bounds import POD_BYTES


class Sized(RequestFields, frozen=True):
    object: dict[str, int] | None = None


DECODER = msgspec.json.Decoder(ObjectReview[Sized])
REQUEST = {"uid": "r1", "operation": "CREATE", "namespace": "team-a", "object": {"size": 3}}


def read(checked_from=0, **review):
    body = encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", **review})
    return read_request(
        body, DECODER, title="AdmissionReview of a Thing", owner="every Thing", checked_from=checked_from
    )


def test_the_request_has_the_modules_own_fields():
    assert read(request=REQUEST).object == {"size": 3}


@pytest.mark.parametrize(
    ("review", "want"),
    [
        ({"request": REQUEST | {"namespace": ""}}, r"request\.namespace is missing: every Thing has a namespace"),
        ({"request": REQUEST | {"uid": ""}}, r"request\.uid is missing"),
        ({"request": REQUEST | {"object": {"size": "x"}}}, r"not a valid AdmissionReview of a Thing: request\.object"),
        ({"request": REQUEST, "kind": "Pod"}, "AdmissionReview"),
        ({}, "request is missing"),
    ],
)
def test_what_is_missing_or_wrong_is_named(review, want):
    with pytest.raises(ReviewError, match=want):
        read(**review)


def test_the_size_is_checked_only_in_bodies_over_the_bound():
    large = {"request": REQUEST | {"object": {"x" * POD_BYTES: 1}}}
    with pytest.raises(TooLargeError, match="length in bytes") as caught:
        read(**large)
    assert (caught.value.review.uid, caught.value.review.namespace) == ("r1", "team-a")
    assert read(checked_from=2 * POD_BYTES, **large).uid == "r1"
