"""List and watch answers on the wire: pages whose objects stay undecoded until their turn, events, lines."""

from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Of a list: its version, and the token of the next page ("" on the last)."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """One page of a list. Some APIs write null for no items."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch; the object is decoded with it, for going over its bytes twice would double the cost."""

    type: str
    object: T


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """What every object says of itself, and a bookmark by its annotations."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class AnyObject(msgspec.Struct, frozen=True):
    """Any object at all: enough for a bookmark's version, or to name one whose own type does not fit."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """Name it as the API does: namespace/name, or name where there is no namespace."""
        return "/".join(filter(None, (self.metadata.namespace, self.metadata.name)))

    @property
    def ends_list(self) -> bool:
        """Tell whether it is the bookmark after the last object of a list that came as a stream."""
        return (self.metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"


class Status(msgspec.Struct, frozen=True):
    """The API's way to say no, as an HTTP body or inside an ERROR event."""

    message: str = ""
    code: int = 0


class _Versioned(msgspec.Struct, frozen=True):
    object: AnyObject = AnyObject()


_ANY_OBJECT: Final = msgspec.json.Decoder(AnyObject)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_STATUS: Final = msgspec.json.Decoder(Status)


def any_object(raw: msgspec.Raw | bytes) -> AnyObject:
    """Read what can be read of an object; nothing of one that is not even an object."""
    try:
        return _ANY_OBJECT.decode(raw)
    except msgspec.DecodeError:
        return AnyObject()


def version_of(line: bytes) -> str:
    """Read the version of an event's object; "" where there is none."""
    try:
        return _VERSIONED.decode(line).object.metadata.resource_version
    except msgspec.DecodeError:
        return ""


def status_of(raw: msgspec.Raw | bytes) -> Status:
    """Read a Status; an empty one where a proxy in between answered in words of its own."""
    try:
        return _STATUS.decode(raw)
    except msgspec.DecodeError:
        return Status()


class LineSplitter:
    """Cuts a stream into lines. A line may be longer than any read buffer: its pieces are joined once, at its end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and give the lines they complete, without newlines and empty ones."""
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces = [lines.pop()]
        return [line for line in lines if line]
