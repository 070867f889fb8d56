"""Cause and remedy of every reason code, for outputs that show them with a finding.

They are written in `codes.json` in this folder, by group; `make docs` generates docs/reference/codes.md from it.
"""

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

FILE_NAME: Final = "codes.json"


class Help(msgspec.Struct, frozen=True):
    """Cause and remedy of a code, in Markdown without links."""

    cause: str
    remedy: str


@cache
def load_help() -> dict[str, Help]:
    """Return the help of every code."""
    content = (files("webhook.cli") / FILE_NAME).read_bytes()
    return msgspec.json.decode(content, type=dict[str, Help])
