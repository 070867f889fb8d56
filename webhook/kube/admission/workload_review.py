"""AdmissionReviews of objects that make pods: the whole object, as plain values."""

from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.model.names import Namespace
from webhook.kube.admission.object_review import ObjectReview, read_request
from webhook.kube.admission.review import NOBODY, Envelope, Operation
from webhook.kube.objects import bounds


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


_decoder: Final = msgspec.json.Decoder(ObjectReview[_Request])


def decode_workload(body: bytes) -> WorkloadReview:
    """Read a review of any object in a namespace. Raises ReviewError, saying what was expected, for all else.

    Raises TooLargeError for an object that is larger than any that is judged.
    """
    request = read_request(
        body, _decoder, title="AdmissionReview", owner="everything that makes pods", checked_from=bounds.LARGE_BYTES
    )
    user = request.user_info or NOBODY
    return WorkloadReview(
        request.uid, request.operation, request.namespace, bool(request.dry_run), user.username, request.object
    )
