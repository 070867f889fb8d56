"""AdmissionReviews of objects other than pods: what reading them has in common, whatever the object is."""

from typing import Generic, TypeVar

import msgspec

from webhook.kube.admission.review import Envelope, ReviewError, Typed, check_is_review, check_size, parse, present
from webhook.kube.objects import objects

_R = TypeVar("_R", bound=Envelope)


class ObjectReview(Typed, Generic[_R], frozen=True, gc=False, rename="camel"):
    """An AdmissionReview whose request holds an object as a module reads it."""

    request: _R | None = None


def read_request(
    body: bytes, decoder: "msgspec.json.Decoder[ObjectReview[_R]]", *, title: str, owner: str, checked_from: int
) -> _R:
    """Read what is asked about an object in a namespace; `title` names the review in errors, `owner` the object.

    Raises ReviewError, saying what was expected, for all else, and TooLargeError for an object that is larger than any
    that is read: bodies of more than `checked_from` bytes are measured first.
    """
    if len(body) > checked_from:
        check_size(body)
    try:
        review = parse(decoder, body)
    except msgspec.ValidationError as error:
        raise ReviewError(f"not a valid {title}: {objects.describe(error)}") from error
    check_is_review(review)
    request = present(review.request)
    if not request.namespace:
        raise ReviewError(f"request.namespace is missing: {owner} has a namespace")
    return request
