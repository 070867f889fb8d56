"""A cluster as a file: what `kubectl get nodes,pods -A -o yaml` (or `-o json`) prints, into core objects.

Reads YAML (several documents too) or JSON; each document is a v1 List or a single object.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from webhook.core.demand import Amounts
from webhook.core.node import Node
from webhook.core.pod import NamespaceFacts, PriorityTriple, Resident
from webhook.kube import keys, nodes, objects, pods

MOST_PROBLEMS: Final = 20
"""A file that is wrong throughout need not say so 50,000 times."""

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where PyYAML has libyaml


class WorldFileError(Exception):
    """The file is no world: `problems` says file, place, what is wrong and what would be right, for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class WorldFile:
    """What a file holds. Pods that take nothing (ended, or without GPUs and without a node) are left out."""

    nodes: tuple[Node, ...] = ()
    residents: tuple[Resident, ...] = ()
    namespaces: tuple[NamespaceFacts, ...] = ()
    priorities: tuple[PriorityTriple, ...] = ()


class _Head(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: objects.ObjectMeta | None = None


_head_decoder: Final = msgspec.json.Decoder(_Head)
_node_decoder: Final = msgspec.json.Decoder(objects.Node)
_pod_decoder: Final = msgspec.json.Decoder(objects.Pod)
_namespace_decoder: Final = msgspec.json.Decoder(objects.NamespaceObject)
_priority_decoder: Final = msgspec.json.Decoder(objects.PriorityClass)

_KINDS: Final = {
    "Node": keys.CORE_API,
    "Pod": keys.CORE_API,
    "Namespace": keys.CORE_API,
    "PriorityClass": keys.PRIORITY_API,
}


@dataclass(slots=True)
class _Found:
    """The objects and problems so far."""

    weights: Amounts
    nodes: list[Node] = field(default_factory=list)
    residents: list[Resident] = field(default_factory=list)
    namespaces: list[NamespaceFacts] = field(default_factory=list)
    priorities: list[PriorityTriple] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def keep(self, kind: str, raw: msgspec.Raw | bytes) -> None:
        """Translate one object. Raises ValueError or MsgspecError where it cannot be."""
        match kind:
            case "Node":
                self.nodes.append(nodes.to_node(_node_decoder.decode(raw)))
            case "Pod":
                resident = pods.to_resident(_pod_decoder.decode(raw), self.weights)
                if resident is not None:
                    self.residents.append(resident)
            case "Namespace":
                self.namespaces.append(nodes.to_namespace(_namespace_decoder.decode(raw)))
            case _:
                self.priorities.append(nodes.to_priority(_priority_decoder.decode(raw)))


def read_world(path: Path, *, weights: Amounts) -> WorldFile:
    """Read a world file; `weights` maps each GPU resource to the GPU units of one piece.

    Raises WorldFileError with every problem (the first twenty) of a file that is not one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorldFileError((f"{path}: cannot be read: {error.strerror or error}",)) from error
    found = _Found(weights)
    documents = list(_documents(content, path))
    if not documents:
        raise WorldFileError((f"{path}: is empty; expected what `kubectl get nodes,pods -A -o yaml` prints",))
    for number, document in enumerate(documents, start=1):
        _read_document(document, str(path) if len(documents) == 1 else f"{path}: document {number}", found)
    found.problems.extend(_duplicates(found, path))
    if found.problems:
        more = len(found.problems) - MOST_PROBLEMS
        told = found.problems[:MOST_PROBLEMS] + ([f"{path}: and {more} more problems"] if more > 0 else [])
        raise WorldFileError(tuple(told))
    return WorldFile(tuple(found.nodes), tuple(found.residents), tuple(found.namespaces), tuple(found.priorities))


def _documents(content: bytes, path: Path) -> Iterator[bytes]:
    """Yield each document as JSON: what is JSON already goes to the decoder without a detour."""
    if content.lstrip()[:1] == b"{":
        yield content
        return
    try:
        for document in yaml.load_all(content, Loader=_Loader):
            if document is not None:
                yield msgspec.json.encode(document)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise WorldFileError((f"{path}: not valid YAML: {text}",)) from error


def _read_document(document: bytes, where: str, found: _Found) -> None:
    try:
        head = _head_decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        found.problems.append(f"{where}: {objects.describe(error)}; expected a v1 List or an object of it")
        return
    if head.kind != "List":
        _read_object(document, head, where, found)
        return
    for index, item in enumerate(head.items or ()):
        place = f"{where}: items[{index}]"
        try:
            item_head = _head_decoder.decode(item)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            found.problems.append(f"{place}: {objects.describe(error)}")
            continue
        _read_object(item, item_head, place, found)


def _read_object(raw: msgspec.Raw | bytes, head: _Head, where: str, found: _Found) -> None:
    if _KINDS.get(head.kind) != head.api_version:
        accepted = ", ".join(f"{api} {kind}" for kind, api in _KINDS.items())
        got = f"{head.api_version or 'no apiVersion'} {head.kind or 'no kind'}"
        found.problems.append(f"{where}: got {got}; expected one of {accepted}, or a v1 List of them")
        return
    if head.metadata is None or not head.metadata.name:
        found.problems.append(f"{where}: {head.kind} without metadata.name; every object needs one")
        return
    name = f"{head.metadata.namespace}/{head.metadata.name}".lstrip("/")
    try:
        found.keep(head.kind, raw)
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors too
        found.problems.append(f"{where} ({head.kind} {name}): {objects.describe(error)}")


def _duplicates(found: _Found, path: Path) -> Iterator[str]:
    named: Mapping[str, tuple[list[Any], Callable[[Any], str]]] = {
        "Node": (found.nodes, lambda node: node.name),
        "Pod": (found.residents, lambda pod: f"{pod.namespace}/{pod.name}"),
        "Namespace": (found.namespaces, lambda namespace: namespace.name),
        "PriorityClass": (found.priorities, lambda priority: priority.name),
    }
    for kind, (items, name_of) in named.items():
        for name, times in Counter(map(name_of, items)).items():
            if times > 1:
                yield f"{path}: {kind} {name} is there {times} times; keep one"
