"""Decoding of AdmissionReviews of objects other than pods, for any kind of object."""

from typing import Generic, TypeVar

import msgspec

from webhook.kube.admission.review import (
    RequestFields,
    ReviewError,
    TypeMeta,
    check_is_review,
    check_size,
    parse,
    require_request,
)
from webhook.kube.objects import objects

_R = TypeVar("_R", bound=RequestFields)


class ObjectReview(TypeMeta, Generic[_R], frozen=True, gc=False, rename="camel"):
    """An AdmissionReview whose request has a module's own fields of the object."""

    request: _R | None = None


def read_request(
    body: bytes, decoder: "msgspec.json.Decoder[ObjectReview[_R]]", *, title: str, owner: str, checked_from: int
) -> _R:
    """Return the request of a review of a namespaced object; errors name the review `title` and the object `owner`.

    Raises ReviewError, with what was expected, if the body is not such a review, and TooLargeError if the object is
    too large: the size of bodies over `checked_from` bytes is checked first.
    """
    if len(body) > checked_from:
        check_size(body)
    try:
        review = parse(decoder, body)
    except msgspec.ValidationError as error:
        raise ReviewError(f"not a valid {title}: {objects.describe(error)}") from error
    check_is_review(review)
    request = require_request(review.request)
    if not request.namespace:
        raise ReviewError(f"request.namespace is missing: {owner} has a namespace")
    return request
