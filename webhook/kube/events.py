"""Events as `kubectl describe` shows them: core/v1, with a count, as every other controller writes them.

Not events.k8s.io/v1: what is written there carries no lastTimestamp, by which most people sort, and its series is shown
by fewer tools. Both APIs read the same objects.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from webhook.core.words import printable_lines
from webhook.kube import keys

LONGEST_MESSAGE: Final = 1024
"""In bytes: kube-apiserver refuses longer ones."""

_LONGEST_NAME: Final = 253
_ID_DIGITS: Final = 16
_NAMESPACE_OF_NONE: Final = "default"  # where Kubernetes keeps events about objects that have no namespace


class EventReason(StrEnum):
    """Why something is told, in a word that can be searched for; docs/operations.md lists them."""

    PROMOTED = "Promoted"
    DEMOTED = "Demoted"
    ADOPTED = "Adopted"
    BYPASSED_ADMISSION = "BypassedAdmission"
    POLICY_REFUSED = "PolicyRefused"
    RECLAIMING = "Reclaiming"
    CANNOT_RECLAIM = "CannotReclaim"
    EVICTION_PLANNED = "EvictionPlanned"
    EVICTION_CANCELLED = "EvictionCancelled"
    EVICTION_REFUSED = "EvictionRefused"
    RECLAIMED = "Reclaimed"
    REPLACED = "Replaced"
    STRANDED = "Stranded"


class EventType(StrEnum):
    """Whether somebody should look."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """What an event is about. `namespace` is "" where the object has none."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    api_version: str = keys.CORE_API


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to an object. Equal events are one object in the API, with a count.

    `action` is what was done, in a verb: the reason says why.
    """

    about: ObjectRef
    type: EventType
    reason: EventReason
    action: str
    message: str

    @property
    def namespace(self) -> str:
        """Tell where the event is kept."""
        return self.about.namespace or _NAMESPACE_OF_NONE

    @property
    def name(self) -> str:
        """Name the event by what it says: the same from another replica meets itself, and is not told twice."""
        told = "\0".join((self.about.uid, self.type, self.reason, self.action, self.message))
        digits = sha256(told.encode()).hexdigest()[:_ID_DIGITS]
        return f"{self.about.name[: _LONGEST_NAME - _ID_DIGITS - 1].rstrip('-.')}.{digits}"


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


class _Event(msgspec.Struct, rename="camel"):
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
    api_version: str = keys.CORE_API
    kind: str = "Event"


class _Repeat(msgspec.Struct, rename="camel"):
    count: int
    last_timestamp: str


def new_event(event: Event, *, count: int, first: datetime, last: datetime, component: str, instance: str) -> bytes:
    """Write an event that was not told before, though it may have happened several times."""
    about = event.about
    body = _Event(
        metadata=_Metadata(event.name, event.namespace),
        involved_object=_Reference(about.kind, about.name, about.api_version, about.namespace, about.uid),
        type=event.type,
        reason=event.reason,
        action=event.action,
        message=_cut(printable_lines(event.message)),
        count=count,
        first_timestamp=_time(first),
        last_timestamp=_time(last),
        source=_Source(component),
        reporting_component=component,
        reporting_instance=instance,
    )
    return msgspec.json.encode(body)


def repeat_patch(*, count: int, last: datetime) -> bytes:
    """Write a merge patch that says how often an event has happened by now."""
    return msgspec.json.encode(_Repeat(count, _time(last)))


def _cut(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= LONGEST_MESSAGE else raw[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
