"""The response to an AdmissionReview: a patch or a refusal, with warnings, encoded as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from webhook.core.model.amounts import printable
from webhook.core.model.reasons import Reason
from webhook.kube.objects import keys

MAX_WARNINGS: Final = 3
MAX_WARNING_CHARACTERS: Final = 120
MAX_REFUSAL_CHARACTERS: Final = 250
"""The API server drops warnings after 4,096 characters and truncates each at 256: few short ones arrive complete. A
warning that replaces a refusal may be longer: it is the only message."""


class Status(StrEnum):
    """The kinds of refusal, by the reason in the API's Status."""

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
    """A refusal as API clients handle it.

    They silently retry TOO_MANY_REQUESTS after `retry_after_seconds`, and report all others.
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
    """Return the response to the review with this uid: a refusal, or admission with these patch operations.

    At most three warnings are sent, each on one line of at most `longest` characters. Audit keys have no prefix: the
    API server adds the webhook's name.
    """
    response = _Response(uid, refusal is None)
    if refusal is not None:
        response.status = _failure(refusal)
    elif patch:
        response.patch_type, response.patch = "JSONPatch", _encoder.encode(patch)
    if warnings:
        response.warnings = [_one_line(text, longest) for text in warnings[:MAX_WARNINGS]]
    if audit_annotations:
        response.audit_annotations = audit_annotations
    return _encoder.encode(_Answer(response))


def _failure(refusal: Refusal) -> _Failure:
    causes = tuple(_Cause(cause.code, printable(cause.text)) for cause in refusal.causes)
    details = _Details(causes, refusal.retry_after_seconds)
    sent = details if details != _Details() else None
    return _Failure(printable(refusal.message), refusal.status, _HTTP_CODES[refusal.status], sent)


def _one_line(text: str, longest: int) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
