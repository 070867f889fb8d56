"""The objects of the cluster as a world file keeps them, encoded: what explanations read besides the world."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.kube.world_file.world_objects import kept_fields

LARGEST: Final = 65_536
"""Bytes of one object that are kept; a larger one counts in the world, and cannot be explained."""

MOST: Final = 1 << 29
"""Bytes of all objects together."""

Json = Mapping[str, Any]


class KeptObjects:
    """Objects by kind and name. `left_out` counts those that were too large; `annotations` are kept, too."""

    def __init__(self, annotations: frozenset[str] = frozenset()) -> None:
        self.left_out = 0
        self._annotations = annotations
        self._found: dict[tuple[str, str], bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def set(self, found: Json) -> bool:
        """Keep the present version of an object; return False where what is kept is as it was."""
        kept = kept_fields(found, annotations=self._annotations)
        if kept is None:
            return True
        encoded = msgspec.json.encode(kept)
        key = _key(found)
        if self._found.get(key) == encoded:
            return False
        self.remove(*key)
        if len(encoded) > LARGEST or self._bytes + len(encoded) > MOST:
            self.left_out += 1
            return True
        self._found[key] = encoded
        self._bytes += len(encoded)
        return True

    def remove(self, kind: str, path: str) -> None:
        """Forget an object; one that is not there changes nothing."""
        encoded = self._found.pop((kind, path), None)
        if encoded is not None:
            self._bytes -= len(encoded)

    def get(self, kind: str, path: str) -> Json | None:
        """Return an object by its kind and namespace/name; None where it is not there."""
        encoded = self._found.get((kind, path))
        return None if encoded is None else msgspec.json.decode(encoded)

    def all(self) -> Iterator[Json]:
        """Yield every object, in no order."""
        for encoded in self._found.values():
            yield msgspec.json.decode(encoded)

    def among(self, is_wanted: Callable[[str, str], bool]) -> Iterator[Json]:
        """Yield the objects that are wanted by their kind and namespace/name."""
        for key, encoded in self._found.items():
            if is_wanted(*key):
                yield msgspec.json.decode(encoded)

    def of_kind(self, kind: str) -> Iterator[Json]:
        """Yield the objects of a kind."""
        for (each, _), encoded in self._found.items():
            if each == kind:
                yield msgspec.json.decode(encoded)


def path_of(found: Json) -> str:
    """Return namespace/name of an object, or its name if it is cluster-scoped."""
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")


def _key(found: Json) -> tuple[str, str]:
    return found["kind"], path_of(found)
