"""Decoding of list and watch responses: pages whose objects stay undecoded until their turn, events, lines."""

from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list: its version, and the token of the next page ("" on the last)."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True, rename="camel"):
    """One page of a list. Some APIs write null for an empty list. Its version is that of its items, which omit it."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None
    api_version: str = ""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One line of a watch; the object is decoded with it, because a second pass would double the cost."""

    type: str
    object: T


class AnyMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of any object, with the annotations that mark a bookmark."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class AnyObject(msgspec.Struct, frozen=True):
    """Any object: enough for a bookmark's version, or to name an object that does not decode as its own type."""

    metadata: AnyMeta = AnyMeta()

    @property
    def key(self) -> str:
        """The object's namespace/name, or name if it is cluster-scoped."""
        return "/".join(filter(None, (self.metadata.namespace, self.metadata.name)))

    @property
    def ends_list(self) -> bool:
        """Whether this is the bookmark after the last object of a streamed list."""
        return (self.metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"


class Status(msgspec.Struct, frozen=True):
    """An error of the API, as an HTTP body or inside an ERROR event."""

    message: str = ""
    code: int = 0


class _Versioned(msgspec.Struct, frozen=True):
    object: AnyObject = AnyObject()


_ANY_OBJECT: Final = msgspec.json.Decoder(AnyObject)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_STATUS: Final = msgspec.json.Decoder(Status)


def any_object(raw: msgspec.Raw | bytes) -> AnyObject:
    """Decode the metadata of an object; empty if it is not an object."""
    try:
        return _ANY_OBJECT.decode(raw)
    except msgspec.DecodeError:
        return AnyObject()


def version_of(line: bytes) -> str:
    """Return the version of an event's object, "" if it has none."""
    try:
        return _VERSIONED.decode(line).object.metadata.resource_version
    except msgspec.DecodeError:
        return ""


def status_of(raw: msgspec.Raw | bytes) -> Status:
    """Decode a Status; an empty one if the body is something else, such as a proxy's page."""
    try:
        return _STATUS.decode(raw)
    except msgspec.DecodeError:
        return Status()


class LineSplitter:
    """Splits a stream into lines. A line may be longer than any read buffer: its pieces are joined once, at its end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes and return the lines that they complete, without newlines and without empty lines."""
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces = [lines.pop()]
        return [line for line in lines if line]
