"""AdmissionReview in and out: bytes to the fields a decision needs, and an answer to bytes. Nothing is decided here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from webhook.core.model.names import Namespace
from webhook.core.model.reason import Reason
from webhook.core.model.text import printable
from webhook.kube.objects import bounds, keys, objects

MOST_WARNINGS: Final = 3
MAX_WARNING_CHARACTERS: Final = 120
MAX_REFUSAL_CHARACTERS: Final = 250
"""The API server drops warnings after 4,096 characters and cuts each at 256: few and short ones arrive whole. One that
stands for a refusal is longer: it is all that its reader gets."""


class ReviewError(Exception):
    """The request is no review that we can judge; `status` is the HTTP status, `text` says what would be right."""

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class TooLargeError(Exception):
    """The object is larger than any that is judged; `review` is the question without it, `text` says what to do."""

    def __init__(self, review: "Review", text: str) -> None:
        super().__init__(text)
        self.review = review
        self.text = text


class Operation(StrEnum):
    """What is being done to the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Review(msgspec.Struct, frozen=True, gc=False):
    """One question of the API server.

    `name` is empty while a pod with a generated name is mutated. `pod` is None on DELETE; `old_pod` is there on
    UPDATE and DELETE. A Struct for speed: it is made once a request.
    """

    uid: str
    operation: Operation
    namespace: Namespace
    name: str
    dry_run: bool
    username: str
    groups: tuple[str, ...]
    pod: objects.Pod | None
    old_pod: objects.PodMetadata | None


class _Resource(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """Who asks."""

    username: str = ""
    groups: tuple[str, ...] | None = None


class Envelope(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What every request has, whatever it is about."""

    operation: Operation
    uid: str = ""
    resource: _Resource | None = None
    sub_resource: str = ""
    namespace: Namespace = Namespace("")
    name: str = ""
    dry_run: bool | None = None
    user_info: UserInfo | None = None


class _PodRequest(Envelope, frozen=True, gc=False, rename="camel"):
    object: objects.Pod | None = None
    old_object: objects.PodMetadata | None = None


class Typed(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What every object says of itself."""

    api_version: str = ""
    kind: str = ""


class _ForeignRequest(Envelope, frozen=True, gc=False, rename="camel"):
    object: Typed | None = None


class _PodReview(Typed, frozen=True, gc=False, rename="camel"):
    request: _PodRequest | None = None


class _ForeignReview(Typed, frozen=True, gc=False, rename="camel"):
    request: _ForeignRequest | None = None


class _RawRequest(Envelope, frozen=True, gc=False, rename="camel"):
    object: msgspec.Raw = objects.NOTHING
    old_object: msgspec.Raw = objects.NOTHING


class _RawReview(Typed, frozen=True, gc=False, rename="camel"):
    request: _RawRequest | None = None


class _RawMetadata(msgspec.Struct, frozen=True, gc=False):
    labels: msgspec.Raw = objects.NOTHING


class _Labelled(msgspec.Struct, frozen=True, gc=False):
    metadata: _RawMetadata = _RawMetadata()


_T = TypeVar("_T")
_R = TypeVar("_R", bound=Envelope)
_pod_decoder: Final = msgspec.json.Decoder(_PodReview)
_raw_decoder: Final = msgspec.json.Decoder(_RawReview)
_labelled_decoder: Final = msgspec.json.Decoder(_Labelled)
_foreign_decoder: Final = msgspec.json.Decoder(_ForeignReview)
_head_decoder: Final = msgspec.json.Decoder(Typed)
NOBODY: Final = UserInfo()
_NO_METADATA: Final = objects.ObjectMeta()


def decode(body: bytes) -> Review:
    """Read a review of a pod.

    Raises ReviewError, saying what was expected and what came, for everything else, and TooLargeError for a pod that
    is larger than any that is read.
    """
    if len(body) > bounds.LABEL_BYTES:
        check_size(body)
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
    user = request.user_info or NOBODY
    return Review(
        uid=request.uid,
        operation=operation,
        namespace=namespace,
        name=request.name or metadata.name,
        dry_run=bool(request.dry_run),
        username=user.username,
        groups=user.groups or (),
        pod=pod,
        old_pod=old_pod,
    )


def check_size(body: bytes) -> None:
    """Raise TooLargeError for a review of an object that is larger, or has more values, than any that is judged.

    Skipping what is not read takes 3 ms for a MiB, making objects of it up to 100.
    """
    try:
        request = parse(_raw_decoder, body).request
    except msgspec.ValidationError:
        return  # told by whoever reads it
    if request is None:
        return
    for raw in map(bytes, (request.object, request.old_object)):
        over = [*bounds.excess("the object: length in bytes", len(raw), bounds.POD_BYTES)]
        if not over and len(raw) > bounds.LARGE_BYTES:
            over = [*bounds.excess("the object: number of values", raw.count(b","), bounds.POD_VALUES)]
        over = over or [*bounds.excess("metadata.labels: length in bytes", _label_bytes(raw), bounds.LABEL_BYTES)]
        if over:
            raise TooLargeError(_without_object(request), over[0])


def _label_bytes(raw: bytes) -> int:
    try:
        return len(bytes(_labelled_decoder.decode(raw).metadata.labels))
    except msgspec.DecodeError:
        return 0  # told by whoever reads it


def _without_object(request: _RawRequest) -> Review:
    user = request.user_info or NOBODY
    return Review(
        uid=request.uid,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
        dry_run=bool(request.dry_run),
        username=user.username,
        groups=user.groups or (),
        pod=None,
        old_pod=None,
    )


def parse(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    """Decode a body. Raises ReviewError where it is no JSON, ValidationError where it is of another shape."""
    if not body:
        raise ReviewError("the body is empty: expected an AdmissionReview as JSON")
    try:
        if not body.isascii():
            body.decode()  # the decoder skips fields unread, and so would not notice
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
    """Find the most telling cause: a review of something else fails somewhere in its object first."""
    try:
        check_is_review(parse(_head_decoder, body))
        request = _checked(parse(_foreign_decoder, body).request)
        if request.object is not None:
            _check_is_pod(request.object)
    except ReviewError as better:
        return better
    except msgspec.ValidationError:
        pass  # the envelope itself is malformed, and `error` says where
    return ReviewError(f"not a valid AdmissionReview of a pod: {objects.describe(error)}")


def check_is_review(review: Typed) -> None:
    """Raise ReviewError for anything but an AdmissionReview v1."""
    if review.api_version != keys.ADMISSION_API or review.kind != "AdmissionReview":
        got = f"{review.api_version or 'no apiVersion'} {review.kind or 'no kind'}"
        raise ReviewError(f"expected {keys.ADMISSION_API} AdmissionReview, got {got}")


def present(request: _R | None) -> _R:
    """Raise ReviewError for a review that asks nothing, or that no answer could name."""
    if request is None:
        raise ReviewError("request is missing: only reviews that ask something can be answered")
    if not request.uid:
        raise ReviewError("request.uid is missing: the answer must repeat it")
    return request


def _checked(request: _R | None) -> _R:
    request = present(request)
    resource = request.resource
    if resource is None:  # written by hand; the object itself must say that it is a pod
        return request
    if resource.resource != "pods" or resource.group:
        got = f"{resource.resource}.{resource.group}".strip(".") or "no name"
        raise ReviewError(f"expected pods, got {got}")
    if resource.version != keys.CORE_API:
        raise ReviewError(f"expected pods of version {keys.CORE_API}, got {resource.version or 'no version'}")
    if request.sub_resource:
        raise ReviewError(f"expected pods, got the subresource pods/{request.sub_resource}")
    return request


def _check_is_pod(found: objects.Pod | Typed) -> None:
    if found.kind != "Pod" or found.api_version != keys.CORE_API:
        got = f"{found.api_version or 'no apiVersion'} {found.kind or 'no kind'}"
        raise ReviewError(f"request.object: expected {keys.CORE_API} Pod, got {got}")


class Status(StrEnum):
    """The kinds of refusal, by the API's own reason word."""

    FORBIDDEN = "Forbidden"
    ALREADY_EXISTS = "AlreadyExists"
    TOO_MANY_REQUESTS = "TooManyRequests"
    BAD_REQUEST = "BadRequest"


_HTTP_CODES: Final = {
    Status.FORBIDDEN: 403,
    Status.ALREADY_EXISTS: 409,
    Status.TOO_MANY_REQUESTS: 429,
    Status.BAD_REQUEST: 400,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal as the API's clients understand it.

    They repeat TOO_MANY_REQUESTS by themselves, silently, after `retry_after_seconds`; the rest they show.
    """

    status: Status
    message: str
    causes: tuple[Reason, ...] = ()
    retry_after_seconds: int = 0


class _Cause(msgspec.Struct, gc=False):
    reason: str
    message: str


class _Details(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    causes: tuple[_Cause, ...] = ()
    retry_after_seconds: int = 0


class _Failure(msgspec.Struct, gc=False, omit_defaults=True):
    message: str
    reason: str
    code: int
    details: _Details | None = None
    status: str = msgspec.field(default_factory=lambda: "Failure")  # a plain default would be omitted


class _Response(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None  # msgspec writes bytes as base64, which is what the API expects
    status: _Failure | None = None
    warnings: list[str] | None = None
    audit_annotations: Mapping[str, str] | None = None


class _Answer(msgspec.Struct, gc=False, rename="camel"):
    response: _Response
    api_version: str = keys.ADMISSION_API
    kind: str = "AdmissionReview"


_encoder: Final = msgspec.json.Encoder()


def encode_response(
    uid: str,
    *,
    refusal: Refusal | None = None,
    patch: Sequence[Mapping[str, object]] = (),
    warnings: Sequence[str] = (),
    audit_annotations: Mapping[str, str] | None = None,
    longest: int = MAX_WARNING_CHARACTERS,
) -> bytes:
    """Write the answer to the review with this uid: a refusal, or leave to enter with these patch operations.

    At most three warnings are sent, each on one line of at most `longest` characters. Audit keys are plain names:
    the API server puts the webhook's name in front.
    """
    response = _Response(uid, refusal is None)
    if refusal is not None:
        response.status = _failure(refusal)
    elif patch:
        response.patch_type, response.patch = "JSONPatch", _encoder.encode(patch)
    if warnings:
        response.warnings = [_short(text, longest) for text in warnings[:MOST_WARNINGS]]
    if audit_annotations:
        response.audit_annotations = audit_annotations
    return _encoder.encode(_Answer(response))


def _failure(refusal: Refusal) -> _Failure:
    causes = tuple(_Cause(cause.code, printable(cause.text)) for cause in refusal.causes)
    details = _Details(causes, refusal.retry_after_seconds)
    told = details if details != _Details() else None
    return _Failure(printable(refusal.message), refusal.status, _HTTP_CODES[refusal.status], told)


def _short(text: str, longest: int) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
