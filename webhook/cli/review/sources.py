"""Reads files, folders and standard input; what cannot be read is reported, and the rest is read."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

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
