"""Events and Leases.

Events as `kubectl describe` shows them: core/v1, with a count, as most controllers write them.

Not events.k8s.io/v1: its Events have no lastTimestamp, by which most users sort, and fewer tools show its series. Both
APIs read the same objects.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, Self

import msgspec

from webhook.core.model.amounts import printable_lines
from webhook.kube.objects import keys

MAX_MESSAGE_BYTES: Final = 1024
"""In bytes: kube-apiserver refuses longer messages."""

_MAX_NAME: Final = 253
_ID_DIGITS: Final = 16
_DEFAULT_NAMESPACE: Final = "default"  # where Kubernetes stores events about cluster-scoped objects


class EventType(StrEnum):
    """The `type` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(StrEnum):
    """The `reason` of an Event, with the `action` that follows from it, a verb, and its type.

    docs/reference/signals.md lists them.
    """

    action: str
    type: EventType

    def __new__(cls, reason: str, action: str, event_type: EventType = EventType.WARNING) -> Self:
        """Return the member of one row."""
        member = str.__new__(cls, reason)
        member._value_, member.action, member.type = reason, action, event_type
        return member

    PROMOTED = "Promoted", "Promote", EventType.NORMAL
    DEMOTED = "Demoted", "Demote"
    ADOPTED = "Adopted", "Adopt", EventType.NORMAL
    BYPASSED_ADMISSION = "BypassedAdmission", "Count"
    POLICY_REFUSED = "PolicyRefused", "Keep"
    REFUSED = "Refused", "Refuse"
    QUEUED = "Queued", "Queue", EventType.NORMAL
    GANG_SIZE_UNKNOWN = "GangSizeUnknown", "Assume"
    GANG_TIMED_OUT = "GangTimedOut", "Wait"
    NO_ROOM_NOW = "NoRoomNow", "Admit"
    NEVER_FITS = "NeverFits", "Admit"
    REJECTS_PODS = "RejectsPods", "Close"
    RECLAIMING = "Reclaiming", "Reclaim", EventType.NORMAL
    CANNOT_RECLAIM = "CannotReclaim", "Reclaim"
    MAKING_ROOM = "MakingRoom", "Move", EventType.NORMAL
    CANNOT_MAKE_ROOM = "CannotMakeRoom", "Move"
    EVICTION_PLANNED = "EvictionPlanned", "Evict"
    MOVED = "Moved", "Move"
    EVICTION_CANCELLED = "EvictionCancelled", "Evict", EventType.NORMAL
    EVICTION_REFUSED = "EvictionRefused", "Evict"
    NODE_LOST = "NodeLost", "Repair"
    RECLAIMED = "Reclaimed", "Evict"
    REPLACED = "Replaced", "Repair", EventType.NORMAL
    STRANDED = "Stranded", "Repair"
    NEVER_STARTED = "NeverStarted", "Repair"
    IDLE = "Idle", "Report"
    IDLE_EVICTED = "IdleEvicted", "Evict"


class ObjectRef(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object that an event is about. `namespace` is "" for a cluster-scoped object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = msgspec.field(default_factory=lambda: keys.CORE_API)  # a value would be left out by default


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object. Equal events are one object in the API, with a count.

    Events of one `series` are also one object, with the latest message: for messages whose numbers change each time.
    `related` is a second object that the event is about.
    """

    about: ObjectRef
    reason: EventReason
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
        return Identity(self.about, self.reason, self.series, "" if self.series else self.message)

    @property
    def name(self) -> str:
        """The name of the Event, a hash of its content: an equal event of another replica has the same name."""
        content = "\0".join(
            (self.about.uid, self.reason.type, self.reason, self.reason.action, self.series or self.message)
        )
        digits = sha256(content.encode()).hexdigest()[:_ID_DIGITS]
        return f"{self.about.name[: _MAX_NAME - _ID_DIGITS - 1].rstrip('-.')}.{digits}"


class Identity(NamedTuple):
    """The fields that equal events have in common."""

    about: ObjectRef
    reason: EventReason
    series: str
    message: str


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str
    namespace: str


class _Source(msgspec.Struct):
    component: str


class _Event(msgspec.Struct, rename="camel", omit_defaults=True):
    metadata: _Metadata
    involved_object: ObjectRef
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
    related: ObjectRef | None = None


class _Repeat(msgspec.Struct, rename="camel"):
    count: int
    last_timestamp: str
    message: str


class _Counted(msgspec.Struct, frozen=True):
    count: int | None = None


_counted: Final = msgspec.json.Decoder(_Counted)


def new_event(event: Event, *, count: int, first: datetime, last: datetime, component: str, instance: str) -> bytes:
    """Return an Event that is not in the API yet, though it may have happened `count` times."""
    body = _Event(
        metadata=_Metadata(event.name, event.namespace),
        involved_object=event.about,
        type=event.reason.type,
        reason=event.reason,
        action=event.reason.action,
        message=_truncated(printable_lines(event.message)),
        count=count,
        first_timestamp=_time(first),
        last_timestamp=_time(last),
        source=_Source(component),
        reporting_component=component,
        reporting_instance=instance,
        api_version=keys.CORE_API,
        kind="Event",
        related=event.related,
    )
    return msgspec.json.encode(body)


def repeat_patch(event: Event, *, count: int, last: datetime) -> bytes:
    """Return a merge patch with an event's current count and message."""
    return msgspec.json.encode(_Repeat(count, _time(last), _truncated(event.message)))


def count_of(body: bytes) -> int:
    """Return the count of an Event from its JSON. Raises ValueError if it is not an Event."""
    return max(1, _counted.decode(body).count or 1)


def _truncated(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= MAX_MESSAGE_BYTES else raw[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# Decoding and encoding of a coordination.k8s.io/v1 Lease. No leader election here.


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. No holder: it is free. The times are for display: clocks of replicas may differ."""

    holder: str = ""
    duration_seconds: int = 0
    acquired_at: str = ""
    renewed_at: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A record and the resourceVersion at which it is stored."""

    record: LeaseRecord
    version: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    metadata: _LeaseMetadata
    spec: _Spec | None = None
    api_version: str = ""
    kind: str = ""


_decoder: Final = msgspec.json.Decoder(_Lease)


def read_lease(body: bytes) -> StoredLease:
    """Decode a Lease; one created by hand may have no spec. Raises ValueError if it is not a Lease."""
    lease = _decoder.decode(body)
    spec = lease.spec or _Spec()
    record = LeaseRecord(
        holder=spec.holder_identity or "",
        duration_seconds=spec.lease_duration_seconds or 0,
        acquired_at=spec.acquire_time or "",
        renewed_at=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
    )
    return StoredLease(record, lease.metadata.resource_version)


def new_lease(record: LeaseRecord, *, namespace: str, name: str) -> bytes:
    """Return a Lease to be created."""
    metadata = _LeaseMetadata(name=name, namespace=namespace)
    return msgspec.json.encode(_Lease(metadata, _spec(record), keys.LEASE_API, "Lease"))


def lease_patch(record: LeaseRecord, *, version: str) -> bytes:
    """Return a merge patch that succeeds only if the Lease still has this version; other fields stay unchanged."""
    return msgspec.json.encode(_Lease(_LeaseMetadata(resource_version=version), _spec(record)))


def micro_time(moment: datetime) -> str:
    """Return a UTC time as a Kubernetes MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _spec(record: LeaseRecord) -> _Spec:
    return _Spec(record.holder, record.duration_seconds, record.acquired_at, record.renewed_at, record.transitions)
