"""Events as `kubectl describe` shows them: core/v1, with a count, as most controllers write them.

Not events.k8s.io/v1: its Events have no lastTimestamp, by which most users sort, and fewer tools show its series. Both
APIs read the same objects.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from webhook.core.model.text import printable_lines
from webhook.kube.objects import keys

MAX_MESSAGE_BYTES: Final = 1024
"""In bytes: kube-apiserver refuses longer messages."""

_MAX_NAME: Final = 253
_ID_DIGITS: Final = 16
_DEFAULT_NAMESPACE: Final = "default"  # where Kubernetes stores events about cluster-scoped objects


class EventReason(StrEnum):
    """The `reason` of an Event; docs/operations.md lists them."""

    PROMOTED = "Promoted"
    DEMOTED = "Demoted"
    ADOPTED = "Adopted"
    BYPASSED_ADMISSION = "BypassedAdmission"
    POLICY_REFUSED = "PolicyRefused"
    REFUSED = "Refused"
    QUEUED = "Queued"
    GANG_SIZE_UNKNOWN = "GangSizeUnknown"
    GANG_TIMED_OUT = "GangTimedOut"
    NO_ROOM_NOW = "NoRoomNow"
    NEVER_FITS = "NeverFits"
    REJECTS_PODS = "RejectsPods"
    RECLAIMING = "Reclaiming"
    CANNOT_RECLAIM = "CannotReclaim"
    EVICTION_PLANNED = "EvictionPlanned"
    EVICTION_CANCELLED = "EvictionCancelled"
    EVICTION_REFUSED = "EvictionRefused"
    NODE_LOST = "NodeLost"
    RECLAIMED = "Reclaimed"
    REPLACED = "Replaced"
    STRANDED = "Stranded"
    NEVER_STARTED = "NeverStarted"


class EventType(StrEnum):
    """The `type` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object that an event is about. `namespace` is "" for a cluster-scoped object."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    api_version: str = keys.CORE_API


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object. Equal events are one object in the API, with a count.

    `action` is a verb for what was done; the reason says why. Events of one `series` are also one object, with the
    latest message: for messages whose numbers change each time. `related` is a second object that the event is about.
    """

    about: ObjectRef
    type: EventType
    reason: EventReason
    action: str
    message: str
    series: str = ""
    related: ObjectRef | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the Event."""
        return self.about.namespace or _DEFAULT_NAMESPACE

    @property
    def identity(self) -> "Identity":
        """The key by which events are equal."""
        return Identity(
            self.about, self.type, self.reason, self.action, self.series, "" if self.series else self.message
        )

    @property
    def name(self) -> str:
        """The name of the Event, a hash of its content: an equal event of another replica has the same name."""
        content = "\0".join((self.about.uid, self.type, self.reason, self.action, self.series or self.message))
        digits = sha256(content.encode()).hexdigest()[:_ID_DIGITS]
        return f"{self.about.name[: _MAX_NAME - _ID_DIGITS - 1].rstrip('-.')}.{digits}"


class Identity(NamedTuple):
    """The fields that equal events have in common."""

    about: ObjectRef
    type: EventType
    reason: EventReason
    action: str
    series: str
    message: str


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str
    namespace: str


class _Reference(msgspec.Struct, omit_defaults=True, rename="camel"):
    kind: str
    name: str
    api_version: str
    namespace: str = ""
    uid: str = ""


class _Source(msgspec.Struct):
    component: str


class _Event(msgspec.Struct, rename="camel", omit_defaults=True):
    metadata: _Metadata
    involved_object: _Reference
    type: str
    reason: str
    action: str
    message: str
    count: int
    first_timestamp: str
    last_timestamp: str
    source: _Source
    reporting_component: str
    reporting_instance: str
    api_version: str
    kind: str
    related: _Reference | None = None


class _Repeat(msgspec.Struct, rename="camel"):
    count: int
    last_timestamp: str
    message: str


class _Counted(msgspec.Struct, frozen=True):
    count: int | None = None


_counted: Final = msgspec.json.Decoder(_Counted)


def new_event(event: Event, *, count: int, first: datetime, last: datetime, component: str, instance: str) -> bytes:
    """Return an Event that is not in the API yet, though it may have happened `count` times."""
    about = event.about
    body = _Event(
        metadata=_Metadata(event.name, event.namespace),
        involved_object=_reference(about),
        type=event.type,
        reason=event.reason,
        action=event.action,
        message=_truncated(printable_lines(event.message)),
        count=count,
        first_timestamp=_time(first),
        last_timestamp=_time(last),
        source=_Source(component),
        reporting_component=component,
        reporting_instance=instance,
        api_version=keys.CORE_API,
        kind="Event",
        related=None if event.related is None else _reference(event.related),
    )
    return msgspec.json.encode(body)


def repeat_patch(event: Event, *, count: int, last: datetime) -> bytes:
    """Return a merge patch with an event's current count and message."""
    return msgspec.json.encode(_Repeat(count, _time(last), _truncated(event.message)))


def count_of(body: bytes) -> int:
    """Return the count of an Event from its JSON. Raises ValueError if it is not an Event."""
    return max(1, _counted.decode(body).count or 1)


def _reference(ref: ObjectRef) -> _Reference:
    return _Reference(ref.kind, ref.name, ref.api_version, ref.namespace, ref.uid)


def _truncated(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= MAX_MESSAGE_BYTES else raw[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
