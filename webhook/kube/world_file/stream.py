"""Manifests as a stream of documents.

Splits a stream of manifests into documents with line numbers; unreadable ones become errors in their place.

The text is cut where YAML begins a new document (a line of three dashes, which no scalar can hold at that place), so
that one broken document does not take those behind it along.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.devices.claim_users import ClaimKey, GroupEntry
from webhook.core.model.amounts import Namespace
from webhook.core.world.world import World
from webhook.kube.kinds.model import Json, dig, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod import devices as dra
from webhook.kube.pod import slices
from webhook.kube.world_file.world_file import KnownClaim, KnownClass, known_claim, known_class, known_template
from webhook.yaml_text import DocumentError, Lines, read_documents

_CUT: Final = re.compile(rb"^---(?=\s|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file: its number and first line, both from 1, and its value."""

    number: int
    line: int
    value: object
    _lines: Lines
    _above: int

    def line_of(self, holder: object, key: str | int) -> int | None:
        """Find the line of a key or element of a mapping or list of this document, by the holder's identity."""
        found = self._lines.get((id(holder), key))
        return None if found is None else found + self._above


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that is not YAML: where, and what is wrong."""

    number: int
    line: int
    problem: str


def read_stream(content: bytes) -> Iterator[Document | Unreadable]:
    """Yield every document that says something, in order; raises nothing, whatever the bytes are."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        content = content.decode("utf-16", errors="replace").encode()
    number = 0
    for above, part in _parts(content.removeprefix(codecs.BOM_UTF8)):
        lines: Lines = {}
        try:
            for value in _values(part, lines):
                number += 1
                if value is not None:
                    yield Document(number, above + _first_line(value, lines), value, lines, above)
        except DocumentError as error:
            number += 1
            yield Unreadable(number, above + error.line, error.problem)


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut before each document's dashes, and count the lines above; a head of comments belongs to what follows."""
    cuts = [found.start() for found in _CUT.finditer(content)]
    if cuts and all(line[:1] in (b"%", b"#", b"") for line in map(bytes.strip, content[: cuts[0]].split(b"\n"))):
        del cuts[0]
    above = 0
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        yield above, content[start:end]
        above += content.count(b"\n", start, end)


def _values(part: bytes, lines: Lines) -> Iterator[object]:
    try:
        yield from read_documents(part, lines=lines)
    except DocumentError:
        if not part.startswith(b"{"):
            raise
        try:
            value = msgspec.json.decode(part)  # JSON may write one character as two escapes, which YAML refuses
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = None
        if value is None:
            raise
        yield value


def _first_line(value: object, lines: Lines) -> int:
    """Find the line of the first key: dashes and comments before it are not what people look for."""
    if isinstance(value, dict) and value:
        return lines.get((id(value), next(iter(value))), 1)
    return 1


# Objects among manifests that claim devices.


_TEMPLATE_OF_DOMAIN: Final = "spec.channel.resourceClaimTemplate.name"


class KnownGroup(NamedTuple):
    """A PodGroup, and the claims that its pods share."""

    key: ClaimKey
    entries: frozenset[GroupEntry]


Devices = KnownClaim | KnownClass | KnownGroup


def read_devices(document: Json, *, namespace: str) -> Devices | None:
    """Return what an object says of claims; None for any other object. Its status is not read: no one may write it.

    `namespace` is the default. Raises msgspec.ValidationError if it is malformed.
    """
    written: dict[str, Any] = {key: value for key, value in document.items() if key != "status"}
    written["metadata"] = {"namespace": namespace, **mapping(document.get("metadata"))}
    match text(document.get("apiVersion")).rpartition("/")[0], document.get("kind"):
        case keys.DEVICES_GROUP, "DeviceClass":
            return known_class(msgspec.convert(written, slices.DeviceClassObject))
        case keys.DEVICES_GROUP, "ResourceClaim":
            return known_claim(msgspec.convert(written, dra.ResourceClaim))
        case keys.DEVICES_GROUP, "ResourceClaimTemplate":
            return known_template(msgspec.convert(written, dra.ResourceClaimTemplate))
        case keys.GROUPS_GROUP, "PodGroup":
            group = msgspec.convert(written, dra.PodGroup)
            return KnownGroup(dra.group_key(group.metadata), dra.to_group(group))
        case "resource.nvidia.com", "ComputeDomain" if name := text(dig(written, _TEMPLATE_OF_DOMAIN)):
            home = text(written["metadata"].get("namespace")) or namespace
            return KnownClaim(ClaimKey("template", Namespace(home), name), ())
    return None


def add_devices(devices: Devices, world: World) -> None:
    """Add what an object says to a world; a claim that is there stays, since it cannot be changed."""
    if isinstance(devices, KnownClass):
        world.set_device_class(devices.device_class.name, devices.device_class, *devices.conditions)
    elif isinstance(devices, KnownGroup):
        world.set_group(devices.key, devices.entries)
    elif devices.key not in world.claims:
        world.set_claim(devices.key, devices.spec)
