"""Files, folders and standard input to bytes; what cannot be read is told, and the rest goes on."""

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
    """One file: its name as the caller would write it, and its bytes or why there are none."""

    name: str
    content: bytes = b""
    problem: str | None = None


def read_sources(paths: Iterable[str], stdin: BinaryIO) -> Iterator[Source]:
    """Yield every file, those of a folder (and of the folders in it) in order of name; `-` is standard input."""
    for path in paths:
        if path == STDIN:
            yield Source(STDIN_NAME, stdin.read())
        elif Path(path).is_dir():
            yield from map(_read_regular, _files(Path(path)))
        else:
            yield _read(Path(path))  # a pipe too: shells write <(helm template .) as one


def _read_regular(file: Path) -> Source:
    """Read what was found in a folder: a pipe there would be waited for without end."""
    if file.exists() and not file.is_file():
        return Source(_shown(file), problem="cannot be read: not a regular file")
    return _read(file)


def _read(file: Path) -> Source:
    try:
        return Source(_shown(file), file.read_bytes())
    except (OSError, ValueError) as error:  # a ValueError for a path with a NUL byte
        return Source(_shown(file), problem=f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _shown(file: Path) -> str:
    """Write a path so that every output can hold it, whatever bytes its name has."""
    return os.fsencode(file).decode(errors="replace")


def _files(path: Path) -> Iterator[Path]:
    """List a folder's manifests; hidden folders (.git, .github) hold other things."""
    unreadable: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and not name.startswith(".")
        )
    yield from (Path(error.filename) for error in unreadable)
