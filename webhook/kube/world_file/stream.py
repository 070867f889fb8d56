"""Manifests as a stream of documents.

Splits a stream of manifests into documents with line numbers; unreadable ones become errors in their place.

The text is cut where YAML begins a new document (a line of three dashes, which no scalar can hold at that place), so
that one broken document does not take those behind it along.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.core.devices.claim_users import ClaimKey, ClaimSpec
from webhook.core.model.amounts import Namespace
from webhook.core.world.world import World
from webhook.kube.kinds.model import Json, dig, mapping, text
from webhook.kube.objects import keys
from webhook.kube.pod import devices as dra
from webhook.kube.pod import slices
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


Add = Callable[[World], None]
"""Adds what an object says to a world; a claim that is there stays, since it cannot be changed."""


def read_devices(document: Json, *, namespace: str) -> Add | None:
    """Return what adds an object that says something of claims; None for any other object.

    Its status is not read: no one may write it. `namespace` is the default. Raises ValueError if it is malformed.
    """
    written: dict[str, Any] = {key: value for key, value in document.items() if key != "status"}
    written["metadata"] = {"namespace": namespace, **mapping(document.get("metadata"))}
    match text(document.get("apiVersion")).rpartition("/")[0], document.get("kind"):
        case keys.DEVICES_GROUP, "DeviceClass":
            made = msgspec.convert(written, slices.DeviceClassObject)
            known, conditions = slices.to_class(made), slices.conditions_of(made)
            return lambda world: world.set_device_class(made.metadata.name, known, *conditions)
        case keys.DEVICES_GROUP, "ResourceClaim":
            claim = msgspec.convert(written, dra.ResourceClaim)
            return _adding(dra.claim_key(claim.metadata), dra.to_claim(claim))
        case keys.DEVICES_GROUP, "ResourceClaimTemplate":
            template = msgspec.convert(written, dra.ResourceClaimTemplate)
            return _adding(dra.template_key(template.metadata), dra.to_template(template))
        case keys.GROUPS_GROUP, "PodGroup":
            group = msgspec.convert(written, dra.PodGroup)
            key, entries = dra.group_key(group.metadata), dra.to_group(group)
            return lambda world: world.set_group(key, entries)
        case "resource.nvidia.com", "ComputeDomain" if name := text(dig(written, _TEMPLATE_OF_DOMAIN)):
            home = text(written["metadata"].get("namespace")) or namespace
            return _adding(ClaimKey("template", Namespace(home), name), ())
    return None


def _adding(key: ClaimKey, spec: ClaimSpec) -> Add:
    def add(world: World) -> None:
        if key not in world.claims:
            world.set_claim(key, spec)

    return add
