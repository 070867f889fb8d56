"""Reads the files of a policy folder as bytes."""

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from webhook.policy.problems import PolicyUnreadable

SUFFIXES: Final = (".yaml", ".yml")
MAX_BYTES: Final = 1024 * 1024  # the limit of a ConfigMap; parsing YAML costs microseconds per byte

Files = Mapping[str, bytes]
"""Contents by displayed name: the path as the caller wrote it, so that editors and terminals can open it."""


def read_files(path: Path) -> Files:
    """Read a folder's policy files in order of name (or one file), at most one byte more than MAX_BYTES of each.

    Hidden names are skipped, such as the `..data` folders of a ConfigMap mount; its file names are symlinks, which are
    followed. Raises PolicyUnreadable if any file cannot be read, a dangling symlink included: skipping a file would
    silently drop its teams.
    """
    try:
        names = sorted(_policy_files(path)) if path.is_dir() else [path]
        return {str(name): _content(name) for name in names}
    except OSError as error:
        raise PolicyUnreadable(f"cannot read {error.filename or path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL byte in the path
        raise PolicyUnreadable(f"cannot read {path!r}: {error}") from error


def fingerprint(files: Files) -> str:
    """Return a hash of names and contents, to detect edits."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _policy_files(folder: Path) -> list[Path]:
    return [
        entry
        for entry in folder.iterdir()
        if entry.suffix in SUFFIXES and not entry.name.startswith(".") and not entry.is_dir()
    ]


def _content(file: Path) -> bytes:
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(0, "not a regular file", str(file))  # a FIFO would block the reader forever
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)
