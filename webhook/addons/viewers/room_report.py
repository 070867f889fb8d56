"""The content of the Report `room`: an anonymous world as text, compressed, and back.

It is JSON, compressed by zlib and then in base64. The nodes of a cluster differ in little, so each is written as its
name and the number of a shape that it has in common with others; 5,000 nodes of ten shapes take some 50 KB.
"""

import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from webhook.addons.viewers.nameless import AnonymousWorld
from webhook.core.model.amounts import NodeName
from webhook.core.model.node import HOSTNAME, Node
from webhook.kube.ledger.reports import MAX_ROOM_BYTES, ROOM_FORMAT, RoomReport

_MAX_BYTES: Final = 256 << 20
"""The largest content that a reader unpacks: some hundred times what is published."""

_AT_ONCE: Final = 500
_NO_NAME: Final = NodeName("")


class _Node(NamedTuple):
    """A node: its name, its shape, when it was created; whether it has the label with its own name."""

    name: NodeName
    shape: int
    created: int
    is_named: bool


class _Content(AnonymousWorld, frozen=True):
    """An anonymous world as it is written: instead of `nodes`, what they have in common and what they have not."""

    shapes: tuple[Node, ...] = ()
    shaped: tuple[_Node, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Content)


@dataclass(frozen=True, slots=True)
class Room:
    """What a Report says, and when it was written, in Unix seconds, None where that cannot be read."""

    world: AnonymousWorld
    at: float | None = None


def room_report(world: AnonymousWorld, *, at: str) -> RoomReport:
    """Return the report of a world; what is too large is left out, first the queue, and the report says so."""
    waiting, omitted = world.waiting, ""
    content = _packed(world)
    if len(content) > MAX_ROOM_BYTES and waiting:
        waiting, omitted = (), "the queue: with it the report would be too large"
        content = _packed(msgspec.structs.replace(world, waiting=()))
    if len(content) > MAX_ROOM_BYTES:
        omitted = f"everything: it would have {len(content):,} bytes, and at most {MAX_ROOM_BYTES:,} are published"
        return RoomReport(at, ROOM_FORMAT, omitted=omitted)
    pods = sum(bool(pod.digest) for pod in world.pods)
    return RoomReport(at, ROOM_FORMAT, len(world.nodes), pods, len(waiting), content, omitted)


def read_room(report: RoomReport) -> AnonymousWorld:
    """Return the world of a report. Raises ValueError with the reason why this version cannot read it."""
    if report.format != ROOM_FORMAT:
        raise ValueError(f"it has format {report.format}, and this version reads {ROOM_FORMAT}")
    if not report.content:
        raise ValueError(f"it omits {report.omitted or 'everything'}")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(b64decode(report.content, validate=True), _MAX_BYTES)
        if not unpacker.eof:
            raise ValueError("it is longer than any that is published, or cut off")
        found = _decoder.decode(raw)
        nodes = tuple([_node(each, found.shapes[each.shape]) for each in found.shaped])
    except (Base64Error, zlib.error, msgspec.MsgspecError, IndexError) as cause:
        raise ValueError(f"its content cannot be read: {cause}") from cause
    rest = (getattr(found, name) for name in AnonymousWorld.__struct_fields__[1:])
    return AnonymousWorld(nodes, *rest)


def _packed(world: AnonymousWorld) -> str:
    shapes: dict[bytes, int] = {}
    nodes = [_written(node, shapes) for node in world.nodes]
    packer = zlib.compressobj()
    parts = [packer.compress(part) for part in _parts(world, nodes, shapes)]
    return b64encode(b"".join([*parts, packer.flush()])).decode()


def _written(node: Node, shapes: dict[bytes, int]) -> _Node:
    is_named = node.labels.get(HOSTNAME) == node.name
    labels = {key: value for key, value in node.labels.items() if not (is_named and key == HOSTNAME)}
    shape = msgspec.json.encode(
        replace(node, name=_NO_NAME, labels=labels, created=0, kept=()), order="sorted", enc_hook=dict
    )
    return _Node(node.name, shapes.setdefault(shape, len(shapes)), node.created, is_named)


def _node(written: _Node, shape: Node) -> Node:
    labels = {**shape.labels, HOSTNAME: str(written.name)} if written.is_named else shape.labels
    return replace(shape, name=written.name, labels=labels, created=written.created)


def _parts(world: AnonymousWorld, nodes: Sequence[_Node], shapes: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON in parts: encoding takes the interpreter from other threads for as long as one part takes."""
    yield b'{"shapes":['
    yield b",".join(shapes)
    rows = {"shaped": nodes, **{name: getattr(world, name) for name in AnonymousWorld.__struct_fields__[1:]}}
    for name, each in rows.items():
        yield f'],"{name}":['.encode()
        for start in range(0, len(each), _AT_ONCE):
            yield b"," * (start > 0) + msgspec.json.encode(each[start : start + _AT_ONCE])[1:-1]
    yield b"]}"
