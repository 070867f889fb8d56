"""AdmissionReviews of objects that make pods: the whole object, as plain values."""

from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.names import Namespace
from webhook.kube import bounds, objects
from webhook.kube.review import (
    NOBODY,
    Envelope,
    Operation,
    ReviewError,
    Typed,
    check_is_review,
    check_size,
    parse,
    present,
)


class WorkloadReview(NamedTuple):
    """One question of the API server about an object that makes pods; `document` is None where there is none."""

    uid: str
    operation: Operation
    namespace: Namespace
    dry_run: bool
    username: str
    document: dict[str, Any] | None


class _Request(Envelope, frozen=True, gc=False, rename="camel"):
    object: dict[str, Any] | None = None


class _Review(Typed, frozen=True, gc=False, rename="camel"):
    request: _Request | None = None


_decoder: Final = msgspec.json.Decoder(_Review)


def decode_workload(body: bytes) -> WorkloadReview:
    """Read a review of any object in a namespace. Raises ReviewError, saying what was expected, for all else.

    Raises TooLargeError for an object that is larger than any that is judged.
    """
    if len(body) > bounds.LARGE_BYTES:
        check_size(body)
    try:
        review = parse(_decoder, body)
    except msgspec.ValidationError as error:
        raise ReviewError(f"not a valid AdmissionReview: {objects.describe(error)}") from error
    check_is_review(review)
    request = present(review.request)
    if not request.namespace:
        raise ReviewError("request.namespace is missing: everything that makes pods has a namespace")
    user = request.user_info or NOBODY
    return WorkloadReview(
        request.uid, request.operation, request.namespace, bool(request.dry_run), user.username, request.object
    )
