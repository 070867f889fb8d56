"""A message, field by field: the stable format `fairgate.dev/notify/v1`, and what it is made of.

Texts are cut to a fixed length and have no control characters: tenants name pods, users and workloads.
"""

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import msgspec

from webhook.core.model.notify_rules import NotifyKind
from webhook.core.model.text import printable, shortened

SCHEMA: Final = "fairgate.dev/notify/v1"
MAX_ITEMS: Final = 20
MAX_TEXT: Final = 500
MAX_NAME: Final = 253


class Severity(StrEnum):
    """How urgent it is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Whether something happened, or a state began, lasts, or ended."""

    HAPPENED = "happened"
    BEGAN = "began"
    LASTS = "lasts"
    ENDED = "ended"


class Subject(NamedTuple):
    """What a message is about: its kind, and the name of a team, department or condition."""

    kind: NotifyKind
    name: str


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing of a message, such as an evicted pod."""

    text: Annotated[str, msgspec.Meta(description="what it is, with the reason and the numbers")]
    at: Annotated[str, msgspec.Meta(description="when it happened; left out for a state")] = ""
    namespace: Annotated[str, msgspec.Meta(description="of a pod")] = ""
    name: Annotated[str, msgspec.Meta(description="of a pod")] = ""
    gpus: Annotated[str, msgspec.Meta(description="GPUs that it is about, as in 2, 0.5 or 3/7")] = ""


class State(NamedTuple):
    """A state of a subject that lasts until it is no longer reported.

    It is news once it lasts for `settle_seconds`, and when its `key` changes; other numbers are not.
    """

    severity: Severity
    summary: str
    items: tuple[Item, ...] = ()
    key: str = ""
    settle_seconds: float = 0.0


class MessageSubject(msgspec.Struct, frozen=True):
    """What a message is about; there is at most one message of one subject in an interval."""

    kind: NotifyKind
    name: Annotated[str, msgspec.Meta(description="the team, `department NAME`, or the condition that does not hold")]


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message to people."""

    schema: Annotated[str, msgspec.Meta(description=f"the format: always {SCHEMA}; new fields may come, none goes")]
    id: Annotated[str, msgspec.Meta(description="the same when a message is sent again after a failure")]
    cluster: Annotated[str, msgspec.Meta(description="notify.cluster of the policy; empty if that is not set")]
    sender: Annotated[str, msgspec.Meta(description="the process that sends it")]
    created_at: Annotated[str, msgspec.Meta(description="RFC 3339, UTC")]
    subject: MessageSubject
    phase: Annotated[Phase, msgspec.Meta(description="happened; or of a state: began, lasts, ended")]
    severity: Severity
    summary: Annotated[str, msgspec.Meta(description="one line of text")]
    since: Annotated[str, msgspec.Meta(description="the first of what happened, or when the state began; RFC 3339")]
    until: Annotated[
        str, msgspec.Meta(description="when the state ended, or is over unless another message comes; RFC 3339")
    ]
    count: Annotated[int, msgspec.Meta(description="how much happened since the last message; 1 for a state")]
    items: Annotated[list[Item], msgspec.Meta(description=f"the first {MAX_ITEMS}")]


def item(text: str, *, at: str = "", namespace: str = "", name: str = "", gpus: str = "") -> Item:
    """Return an item with its texts bounded and printable."""
    return Item(bounded(text), at, bounded(namespace, MAX_NAME), bounded(name, MAX_NAME), gpus)


def bounded(text: str, longest: int = MAX_TEXT) -> str:
    """Return a text on one line, without control characters, cut to a length."""
    return shortened(printable(" ".join(text[: 4 * longest].split())), longest)
