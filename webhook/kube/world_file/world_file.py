"""World files: from the output of `kubectl get nodes,pods -A -o yaml` (or `-o json`) to a world.

Reads YAML (several documents too) or JSON; each document is a v1 List or a single object.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from webhook.core.world.listed_charges import assume_charges
from webhook.core.world.world import World
from webhook.files import InputError
from webhook.kube.nodes import nodes
from webhook.kube.objects import keys, objects
from webhook.kube.pod.existing import EndedPod, to_ended
from webhook.kube.watched.kinds import path_of
from webhook.kube.watched.world_kinds import FILE_KINDS, NODES, PODS, WorldKind
from webhook.yaml_text import DocumentError, read_documents

MAX_PROBLEMS: Final = 20
"""Maximum number of problems that are reported for a file."""


class WorldFileError(InputError):
    """The file is not a world file: each of `problems` has file, path, what is wrong and what was expected."""


class _Head(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: objects.ObjectMeta | None = None


_head_decoder: Final = msgspec.json.Decoder(_Head)
_NAMED: Final[tuple[WorldKind[Any], ...]] = (NODES, PODS, *FILE_KINDS)  # in the order of messages
_ROWS: Final = {row.kind: row for row in _NAMED}
_decoders: Final = {row.kind: msgspec.json.Decoder(row.item) for row in FILE_KINDS}


class _Read(NamedTuple):
    """A decoded object, and its place in the file."""

    where: str
    found: Any


class Filled(NamedTuple):
    """What a world has no use for: GPU pods that have ended, and what could not be read of the objects of a cluster."""

    ended: tuple[EndedPod, ...]
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _File:
    """What was decoded of a file, by kind, and the problems so far; `is_live`: it is what a cluster has."""

    name: str
    is_live: bool
    read: dict[str, list[_Read]] = field(default_factory=lambda: {kind: [] for kind in _ROWS})
    problems: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Any]:
        """Return the objects of a kind."""
        return [each.found for each in self.read[kind]]

    def check(self) -> None:
        """Raise WorldFileError with the problems, if there are any."""
        if self.problems:
            more = len(self.problems) - MAX_PROBLEMS
            end = [f"{self.name}: and {more} more problems"] if more > 0 else []
            raise WorldFileError(*self.problems[:MAX_PROBLEMS], *end)


def fill_world(
    world: World, content: bytes | str, *, name: str, has_charges: bool = True, is_live: bool = False
) -> Filled:
    """Add everything of a text to a world.

    `has_charges`: what its ledgers list, and its held nodes keep, is charged. `is_live`: it is what a cluster has, and
    what cannot be read there is left out, as by a watch. Otherwise raises WorldFileError; its problems name the file
    `name` (at most twenty); the world is of no use then.
    """
    file = _File(name, is_live)
    documents = list(_documents(content.encode() if isinstance(content, str) else content, name))
    if not documents:
        raise WorldFileError(f"{name}: is empty; expected what `kubectl get nodes,pods -A -o yaml` prints")
    for number, document in enumerate(documents, start=1):
        _read_document(document, name if len(documents) == 1 else f"{name}: document {number}", file)
    world.autoscalers |= nodes.found_in(each for item in nodes.API for each in file.of(nodes.API[item].kind))
    for row in FILE_KINDS:
        _apply(row, file, world)
    if not is_live:
        file.check()
    if has_charges:
        ledgers = file.of(keys.TEAM_LEDGER)
        assume_charges(
            world, [each for found in ledgers for each in found.record.flights.values()] if ledgers else None
        )
    latest = max((pod.created for pod in world.pods()), default=0)
    world.rejecting_nodes.tick(max(latest, world.rejecting_nodes.latest))
    world.sort_nodes()
    ended = (to_ended(pod, world.policy.resources) for pod in file.of(PODS.kind))
    return Filled(tuple(each for each in ended if each is not None), tuple(file.problems))


def read_world(world: World, path: str | Path) -> Filled:
    """Add everything of a file to a world, as fill_world does."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise WorldFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    return fill_world(world, content, name=str(path))


def add_objects(
    world: World, listed: Iterable[object], *, name: str, has_charges: bool = True, is_live: bool = False
) -> Filled:
    """Add objects, as JSON has them, to a world, as fill_world does."""
    content = msgspec.json.encode({"apiVersion": keys.CORE_API, "kind": "List", "items": list(listed)})
    return fill_world(world, content, name=name, has_charges=has_charges, is_live=is_live)


def _apply(row: WorldKind[Any], file: _File, world: World) -> None:
    """Add the objects of a kind to a world; each name may occur once."""
    times: dict[str, int] = {}
    for where, found in file.read[row.kind]:
        path = path_of(found)
        try:
            is_stored = row.apply(world, found) is not False
        except ValueError as error:
            file.problems.append(f"{where} ({row.kind} {path}): {objects.describe(error)}")
            left = row.salvage(found) if row.salvage is not None and file.is_live else None
            is_stored = left is not None and row.apply(world, left) is not False
        if is_stored:
            times[path] = times.get(path, 0) + 1
    repeated = ((path, number) for path, number in times.items() if number > 1)
    file.problems += (f"{file.name}: {row.kind} {path} occurs {number} times; keep one" for path, number in repeated)


def _documents(content: bytes, name: str) -> Iterator[bytes]:
    """Yield each document as JSON; JSON input is passed on without parsing."""
    if content.lstrip()[:1] == b"{":
        yield content
        return
    try:
        for document in read_documents(content):
            if document is not None:
                yield msgspec.json.encode(document)
    except (DocumentError, UnicodeEncodeError) as error:
        raise WorldFileError(f"{name}: not valid YAML: {error}") from error


def _read_document(document: bytes, where: str, file: _File) -> None:
    try:
        head = _head_decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        file.problems.append(f"{where}: {objects.describe(error)}; expected a v1 List or an object of it")
        return
    if head.kind != "List":
        _read_object(document, head, where, file)
        return
    for index, item in enumerate(head.items or ()):
        place = f"{where}: items[{index}]"
        try:
            item_head = _head_decoder.decode(item)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            file.problems.append(f"{place}: {objects.describe(error)}")
            continue
        _read_object(item, item_head, place, file)


def _read_object(raw: msgspec.Raw | bytes, head: _Head, where: str, file: _File) -> None:
    row = _ROWS.get(head.kind)
    if row is None or head.api_version not in (row.api, *row.older):
        accepted = ", ".join(f"{each.api} {each.kind}" for each in _ROWS.values())
        got = f"{head.api_version or 'no apiVersion'} {head.kind or 'no kind'}"
        file.problems.append(f"{where}: got {got}; expected one of {accepted}, or a v1 List of them")
        return
    if head.metadata is None or not head.metadata.name:
        file.problems.append(f"{where}: {head.kind} without metadata.name; every object needs one")
        return
    try:
        file.read[row.kind].append(_Read(where, _decoders[row.kind].decode(raw)))
    except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are ValueErrors too
        name = f"{head.metadata.namespace}/{head.metadata.name}".lstrip("/")
        file.problems.append(f"{where} ({head.kind} {name}): {objects.describe(error)}")
        if row.salvage is not None and file.is_live and (left := row.salvage(bytes(raw))) is not None:
            file.read[row.kind].append(_Read(where, left))
