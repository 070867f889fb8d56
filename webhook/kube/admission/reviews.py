"""Requests of all reviews.

Decoding of AdmissionReviews of pods: from bytes to the fields that a decision needs. No decisions here.
"""

from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from webhook.core.admission.domain_rules import Allocation
from webhook.core.model.amounts import Namespace, Uid
from webhook.kube.objects import bounds, keys, objects
from webhook.kube.pod import devices


class ReviewError(Exception):
    """The request is not a supported review; `status` is the HTTP status, `text` says what was expected."""

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class TooLargeError(Exception):
    """The object exceeds a size limit; `review` is the review without the object, `text` the message with a remedy."""

    def __init__(self, review: "Review", text: str) -> None:
        super().__init__(text)
        self.review = review
        self.text = text


class Operation(StrEnum):
    """The operation under review."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Review(msgspec.Struct, frozen=True, gc=False):
    """A review of a pod.

    `name` is empty while a pod with a generated name is mutated. `pod` is None on DELETE; `old_pod` is set on UPDATE
    and DELETE. A Struct for speed: one is created per request.
    """

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    pod: objects.Pod | None
    old_pod: objects.OldPod | None


class _Resource(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """The requesting user."""

    username: str = ""


class RequestFields(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields that every request has, for any kind of object."""

    operation: Operation
    uid: str = ""
    resource: _Resource | None = None
    sub_resource: str = ""
    namespace: Namespace = Namespace("")
    name: str = ""
    dry_run: bool | None = None
    user_info: UserInfo | None = None


class _PodRequest(RequestFields, frozen=True, gc=False, rename="camel"):
    object: objects.Pod | None = None
    old_object: objects.OldPod | None = None


class TypeMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The apiVersion and kind of an object."""

    api_version: str = ""
    kind: str = ""


class _ForeignRequest(RequestFields, frozen=True, gc=False, rename="camel"):
    object: TypeMeta | None = None


class _PodReview(TypeMeta, frozen=True, gc=False, rename="camel"):
    request: _PodRequest | None = None


class _ForeignReview(TypeMeta, frozen=True, gc=False, rename="camel"):
    request: _ForeignRequest | None = None


class _RawRequest(RequestFields, frozen=True, gc=False, rename="camel"):
    object: msgspec.Raw = objects.NOTHING
    old_object: msgspec.Raw = objects.NOTHING


class _RawReview(TypeMeta, frozen=True, gc=False, rename="camel"):
    request: _RawRequest | None = None


class _RawMetadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    labels: msgspec.Raw = objects.NOTHING
    managed_fields: msgspec.Raw = objects.NOTHING


_NO_RAW_METADATA: Final = _RawMetadata()


class _WithMetadata(msgspec.Struct, frozen=True, gc=False):
    metadata: _RawMetadata = _NO_RAW_METADATA


_T = TypeVar("_T")
_R = TypeVar("_R", bound=RequestFields)
_pod_decoder: Final = msgspec.json.Decoder(_PodReview)
_raw_decoder: Final = msgspec.json.Decoder(_RawReview)
_metadata_decoder: Final = msgspec.json.Decoder(_WithMetadata)
_foreign_decoder: Final = msgspec.json.Decoder(_ForeignReview)
_head_decoder: Final = msgspec.json.Decoder(TypeMeta)
NO_USER: Final = UserInfo()
_NO_METADATA: Final = objects.ObjectMeta()
_STORED: Final = f"the pod: length in bytes, with {bounds.APPLIED} times that of metadata.managedFields,"


def decode(body: bytes) -> Review:
    """Decode a review of a pod.

    Raises ReviewError, with what was expected and what was received, if the body is not one, and TooLargeError if the
    pod is too large.
    """
    if len(body) > bounds.LABEL_BYTES:
        check_size(body, is_pod=True)
    try:
        review = parse(_pod_decoder, body)
    except msgspec.ValidationError as error:
        raise _explain(body, error) from error
    check_is_review(review)
    request = _checked(review.request)
    operation, pod, old_pod = request.operation, request.object, request.old_object
    if pod is not None:
        _check_is_pod(pod)
    elif operation is Operation.CREATE or operation is Operation.UPDATE:
        raise ReviewError(f"request.object is missing: a review of {operation} carries the pod")
    if old_pod is None and (operation is Operation.UPDATE or operation is Operation.DELETE):
        raise ReviewError(f"request.oldObject is missing: a review of {operation} carries the pod as it was")
    metadata = pod.metadata if pod is not None else old_pod.metadata if old_pod is not None else _NO_METADATA
    namespace = request.namespace or metadata.namespace
    if not namespace:
        raise ReviewError("request.namespace is missing: every pod has a namespace")
    user = request.user_info or NO_USER
    return Review(
        uid=request.uid,
        operation=operation,
        namespace=namespace,
        name=request.name or metadata.name,
        dry_run=bool(request.dry_run),
        username=user.username,
        pod=pod,
        old_pod=old_pod,
    )


def check_size(body: bytes, *, is_pod: bool = False) -> None:
    """Raise TooLargeError if the object is too large or has too many values, or if a pod could grow too large.

    Skipping unread fields takes 3 ms per MiB, building objects from them up to 100 ms.
    """
    try:
        request = parse(_raw_decoder, body).request
    except msgspec.ValidationError:
        return  # reported when the review is decoded
    if request is None:
        return
    for part in (request.object, request.old_object):
        if excess := _excess(part, is_pod=is_pod):
            raise TooLargeError(_without_object(request), excess[0])


def _excess(part: msgspec.Raw, *, is_pod: bool) -> tuple[str, ...]:
    if excess := bounds.excess("the object: length in bytes", memoryview(part).nbytes, bounds.POD_BYTES):
        return excess
    raw = bytes(part)
    values = sum(map(raw.count, (b",", b"[", b"{")))
    metadata = _raw_metadata(raw)
    stored = len(raw) + bounds.APPLIED * len(bytes(metadata.managed_fields)) if is_pod else 0
    return (
        bounds.excess("the object: number of values", values, bounds.POD_VALUES)
        or bounds.excess("metadata.labels: length in bytes", len(bytes(metadata.labels)), bounds.LABEL_BYTES)
        or bounds.excess(_STORED, stored, bounds.GPU_POD_BYTES)
    )


def _raw_metadata(raw: bytes) -> _RawMetadata:
    try:
        return _metadata_decoder.decode(raw).metadata
    except msgspec.DecodeError:
        return _NO_RAW_METADATA  # reported when the review is decoded


def _without_object(request: _RawRequest) -> Review:
    user = request.user_info or NO_USER
    return Review(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
        dry_run=bool(request.dry_run),
        username=user.username,
        pod=None,
        old_pod=None,
    )


def parse(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    """Decode a body. Raises ReviewError if it is not JSON, ValidationError if it has other types."""
    if not body:
        raise ReviewError("the body is empty: expected an AdmissionReview as JSON")
    try:
        if not body.isascii():
            body.decode()  # the decoder skips unknown fields without checking their encoding
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise ReviewError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ReviewError("the body is nested too deeply to be an AdmissionReview") from error
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise ReviewError(f"the body is not valid JSON: {error}") from error


def _explain(body: bytes, error: msgspec.ValidationError) -> ReviewError:
    """Return the most specific cause: a review of another kind fails in some field of its object first."""
    try:
        check_is_review(parse(_head_decoder, body))
        request = _checked(parse(_foreign_decoder, body).request)
        if request.object is not None:
            _check_is_pod(request.object)
    except ReviewError as specific:
        return specific
    except msgspec.ValidationError:
        pass  # the envelope itself is malformed, and `error` says where
    return ReviewError(f"not a valid AdmissionReview of a pod: {objects.describe(error)}")


def check_is_review(review: TypeMeta) -> None:
    """Raise ReviewError if it is not an AdmissionReview v1."""
    if review.api_version != keys.ADMISSION_API or review.kind != "AdmissionReview":
        got = f"{review.api_version or 'no apiVersion'} {review.kind or 'no kind'}"
        raise ReviewError(f"expected {keys.ADMISSION_API} AdmissionReview, got {got}")


def require_request(request: _R | None) -> _R:
    """Return the request. Raises ReviewError if it is missing or has no uid."""
    if request is None:
        raise ReviewError("request is missing: a review without a request cannot be answered")
    if not request.uid:
        raise ReviewError("request.uid is missing: the response must repeat it")
    return request


def _checked(request: _R | None) -> _R:
    request = require_request(request)
    resource = request.resource
    if resource is None:  # written by hand; the kind of the object is checked instead
        return request
    if resource.resource != "pods" or resource.group:
        got = f"{resource.resource}.{resource.group}".strip(".") or "no name"
        raise ReviewError(f"expected pods, got {got}")
    if resource.version != keys.CORE_API:
        raise ReviewError(f"expected pods of version {keys.CORE_API}, got {resource.version or 'no version'}")
    if request.sub_resource:
        raise ReviewError(f"expected pods, got the subresource pods/{request.sub_resource}")
    return request


def _check_is_pod(found: objects.Pod | TypeMeta) -> None:
    if found.kind != "Pod" or found.api_version != keys.CORE_API:
        got = f"{found.api_version or 'no apiVersion'} {found.kind or 'no kind'}"
        raise ReviewError(f"request.object: expected {keys.CORE_API} Pod, got {got}")


# Decoding of AdmissionReviews of objects other than pods, for any kind of object.


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


# AdmissionReviews of ResourceClaims to which kube-scheduler allocates devices.


_PODS: Final = "pods"


class ClaimReview(NamedTuple):
    """A review of a claim; `allocation` is None if it is allocated no devices."""

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    allocation: Allocation | None


class _ClaimRequest(RequestFields, frozen=True, gc=False, rename="camel"):
    object: devices.ResourceClaim | None = None


_claim_decoder: Final = msgspec.json.Decoder(ObjectReview[_ClaimRequest])


def decode_claim(body: bytes) -> ClaimReview:
    """Decode a review of a claim.

    Raises ReviewError, with what was expected, if the body is not one, and TooLargeError if the claim is too large.
    """
    request = read_request(
        body,
        _claim_decoder,
        title="AdmissionReview of a ResourceClaim",
        owner="every ResourceClaim",
        checked_from=bounds.LABEL_BYTES,
    )
    claim, user = request.object, request.user_info or NO_USER
    return ClaimReview(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name or ("" if claim is None else claim.metadata.name),
        dry_run=bool(request.dry_run),
        username=user.username,
        allocation=None if claim is None else _allocation(claim, request.namespace),
    )


def _allocation(claim: devices.ResourceClaim, namespace: Namespace) -> Allocation | None:
    allocated = devices.allocated(claim)
    if allocated is None:
        return None
    reserved = (claim.status.reserved_for if claim.status is not None else None) or ()
    key = devices.claim_key(claim.metadata)
    return Allocation(
        key=key._replace(namespace=namespace),
        uid=claim.metadata.uid,
        devices=allocated,
        pods=tuple(Uid(each.uid) for each in reserved if each.resource == _PODS),
        made_for=devices.made_for(claim),
    )


# AdmissionReviews of workloads: the whole object, as plain values.


class WorkloadReview(NamedTuple):
    """A review of an object that creates pods; `document` is None if the review has no object."""

    uid: str
    operation: Operation
    namespace: Namespace
    dry_run: bool
    username: str
    document: dict[str, Any] | None


class _WorkloadRequest(RequestFields, frozen=True, gc=False, rename="camel"):
    object: dict[str, Any] | None = None


_workload_decoder: Final = msgspec.json.Decoder(ObjectReview[_WorkloadRequest])


def decode_workload(body: bytes) -> WorkloadReview:
    """Decode a review of any namespaced object.

    Raises ReviewError, with what was expected, if the body is not one, and TooLargeError if the object is too large.
    """
    request = read_request(
        body, _workload_decoder, title="AdmissionReview", owner="every workload", checked_from=bounds.LABEL_BYTES
    )
    user = request.user_info or NO_USER
    return WorkloadReview(
        request.uid, request.operation, request.namespace, bool(request.dry_run), user.username, request.object
    )
