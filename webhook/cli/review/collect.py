"""Manifests to pods.

Reads files, folders and standard input; what cannot be read is reported, and the rest is read.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from webhook.cli.review.evaluator import Item
from webhook.cli.review.results import Place, PodGroup, WorkloadResult
from webhook.core.model.decision import Outcome
from webhook.core.model.pod import NamespaceFacts, PriorityTriple, Requester
from webhook.core.model.reasons import Code, Reason
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import mapping, shown, text
from webhook.kube.nodes.nodes import to_namespace, to_priority
from webhook.kube.objects import keys, objects
from webhook.kube.world_file.stream import Add, Document, Unreadable, read_devices, read_stream

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name as the user wrote it, and its content, or why it cannot be read."""

    name: str
    content: bytes = b""
    problem: str | None = None


def read_sources(paths: Iterable[str], stdin: BinaryIO) -> Iterator[Source]:
    """Yield every file, those of a folder recursively in order of name; `-` is standard input."""
    for path in paths:
        if path == STDIN:
            yield Source(STDIN_NAME, stdin.read())
        elif Path(path).is_dir():
            yield from map(_read_regular, _files(Path(path)))
        else:
            yield _read(Path(path))  # may be a pipe: shells pass <(helm template .) as one


def _read_regular(file: Path) -> Source:
    """Read a file of a folder, unless it is not a regular file: reading a pipe there could block forever."""
    if file.exists() and not file.is_file():
        return Source(_shown(file), problem="cannot be read: not a regular file")
    return _read(file)


def _read(file: Path) -> Source:
    try:
        return Source(_shown(file), file.read_bytes())
    except (OSError, ValueError) as error:  # a ValueError for a path with a NUL byte
        return Source(_shown(file), problem=f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _shown(file: Path) -> str:
    """Return a path as valid text, whatever bytes it has."""
    return os.fsencode(file).decode(errors="replace")


def _files(path: Path) -> Iterator[Path]:
    """Yield a folder's manifests, without hidden folders (.git, .github)."""
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and not name.startswith(".")
        )
    yield from (Path(error.filename) for error in unreadable)


# Collects from all documents the objects to review, and those that the review depends on.


@dataclass(slots=True)
class Collected:
    """The contents of all sources. `entries` are in order: objects, and places that cannot be read."""

    namespace: str
    entries: list[Item | WorkloadResult] = field(default_factory=list)
    namespaces: list[NamespaceFacts] = field(default_factory=list)
    priority_classes: list[PriorityTriple] = field(default_factory=list)
    devices: list[Add] = field(default_factory=list)
    reviews: list[tuple[Place, Mapping[str, Any]]] = field(default_factory=list)
    skipped: int = 0

    def related(self, limit_ranges: Iterable[Mapping[str, Any]]) -> Related:
        """Return the objects that workloads may refer to, those of the manifests before those of the world."""
        own = (entry.object for entry in self.entries if isinstance(entry, Item))
        return Related.of(chain(limit_ranges, own), namespace=self.namespace)


def collect(sources: Iterable[Source], *, namespace: str) -> Collected:
    """Read all sources; `namespace` is the default of objects without one."""
    collected = Collected(namespace)
    for source in sources:
        if source.problem is not None:
            collected.entries.append(unreadable(Place(source.name, 1, 1), source.problem))
            continue
        for document in read_stream(source.content):
            place = Place(source.name, document.line, document.number)
            if isinstance(document, Unreadable):
                collected.entries.append(unreadable(place, f"not valid YAML: {document.problem}"))
                continue
            for found, line in _flattened(document, document.value, document.line):
                _add(collected, Place(source.name, line, document.number), document, found)
    return collected


def unreadable(place: Place, problem: str) -> WorkloadResult:
    """Return the result for a place that cannot be read."""
    group = PodGroup("", None, Outcome.SKIP, (Reason(Code.UNREADABLE, "{problem}", {"problem": problem}),), place.line)
    return WorkloadResult(place, "", "", "", "", (group,))


def _flattened(document: Document, value: object, line: int) -> Iterator[tuple[object, int]]:
    """Yield the objects of a document with their lines, the items of a List one by one."""
    items = value.get("items") if isinstance(value, dict) and text(value.get("kind")).endswith("List") else None
    if not isinstance(items, list):
        yield value, line
        return
    for index, item in enumerate(items):
        yield from _flattened(document, item, document.line_of(items, index) or line)


def _add(collected: Collected, place: Place, document: Document, found: object) -> None:
    if not isinstance(found, dict) or not (found.keys() & {"apiVersion", "kind"}):
        collected.skipped += 1  # values of a Helm chart, settings of a tool
        return
    api_version, kind = text(found.get("apiVersion")), text(found.get("kind"))
    metadata = mapping(found.get("metadata"))
    for key in ("name", "namespace", "generateName"):
        if not isinstance(metadata.get(key), str | None):
            problem = f"metadata.{key} is {shown(metadata[key])}; expected text: quote it"
            collected.entries.append(unreadable(place, problem))
            return
    try:
        if (api_version, kind) == (keys.CORE_API, "Namespace"):
            collected.namespaces.append(to_namespace(msgspec.convert(found, objects.Namespace)))
        elif (api_version, kind) == (keys.PRIORITY_API, "PriorityClass"):
            collected.priority_classes.append(to_priority(msgspec.convert(found, objects.PriorityClass)))
        elif (devices := read_devices(found, namespace=collected.namespace)) is not None:
            collected.devices.append(devices)
    except msgspec.ValidationError as error:
        collected.entries.append(unreadable(place, f"not a valid {kind}: {objects.describe(error)}"))
        return
    if kind == "AdmissionReview":
        collected.reviews.append((place, found))
        request = mapping(found.get("request"))
        requested = request.get("object")
        if request.get("operation") != "CREATE" or not isinstance(requested, dict):
            collected.skipped += 1
            return
        requester = Requester(text(mapping(request.get("userInfo")).get("username")))
        namespace = text(request.get("namespace")) or collected.namespace
        collected.entries.append(Item(place, document, requested, namespace, requester))
        return
    collected.entries.append(Item(place, document, found, collected.namespace))
