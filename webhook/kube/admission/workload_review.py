"""AdmissionReviews of workloads: the whole object, as plain values."""

from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.names import Namespace
from webhook.kube.admission.object_review import ObjectReview, read_request
from webhook.kube.admission.review import NO_USER, Operation, RequestFields
from webhook.kube.objects import bounds


class WorkloadReview(NamedTuple):
    """A review of an object that creates pods; `document` is None if the review has no object."""

    uid: str
    operation: Operation
    namespace: Namespace
    dry_run: bool
    username: str
    document: dict[str, Any] | None


class _Request(RequestFields, frozen=True, gc=False, rename="camel"):
    object: dict[str, Any] | None = None


_decoder: Final = msgspec.json.Decoder(ObjectReview[_Request])


def decode_workload(body: bytes) -> WorkloadReview:
    """Decode a review of any namespaced object.

    Raises ReviewError, with what was expected, if the body is not one, and TooLargeError if the object is too large.
    """
    request = read_request(
        body, _decoder, title="AdmissionReview", owner="every workload", checked_from=bounds.LABEL_BYTES
    )
    user = request.user_info or NO_USER
    return WorkloadReview(
        request.uid, request.operation, request.namespace, bool(request.dry_run), user.username, request.object
    )
