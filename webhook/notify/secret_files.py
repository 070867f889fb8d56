"""Secrets from a mounted folder: read for each message, so that a rotated Secret is used at once; never shown.

Policy gives names of files in this folder, and no path: who may edit the policy must not be able to send another file,
such as the ServiceAccount's token, to an address of their choice.
"""

from pathlib import Path
from typing import Final

MAX_BYTES: Final = 256 * 1024
"""A bundle of all public CAs has 200 KiB."""


class SecretError(Exception):
    """A file of the folder cannot be used; the text names it, and nothing of its content."""


def read_secret(folder: Path | None, name: str) -> bytes:
    """Return the content of a file, at most MAX_BYTES. Raises SecretError."""
    if folder is None:
        raise SecretError(f"file {name}: this process has no folder of secrets (--notify-secrets)")
    path = folder / name
    try:
        # a mounted Secret has links to its own hidden folder
        if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
            raise SecretError(f"file {name} leads out of the folder of secrets")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"file {name} of the folder of secrets: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise SecretError(f"file {name} of the folder of secrets is larger than {MAX_BYTES:,} bytes")
    return content


def read_line(folder: Path | None, name: str) -> str:
    """Return the only line of a file, as for a header. Raises SecretError."""
    content = read_secret(folder, name).strip()
    if not content or not content.isascii() or not content.decode().isprintable():
        raise SecretError(f"file {name} of the folder of secrets: expected one line of printable ASCII characters")
    return content.decode()
