"""Cause and remedy of every reason code, as policies/README.md has them: for tools that show them beside a finding.

`codes.json` beside this file is made from that page by `make docs`; a test compares.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

KEPT: Final = "codes.json"

_ROW: Final = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Help(msgspec.Struct, frozen=True):
    """What a code means and what to do about it, in Markdown without links."""

    cause: str
    remedy: str


def read_table(page: str) -> dict[str, Help]:
    """Read the table of reason codes from the text of policies/README.md."""
    rows = _ROW.findall(page.partition("## Reason codes")[2])
    return {code: Help(_LINK.sub(r"\1", cause), _LINK.sub(r"\1", remedy)) for code, cause, remedy in rows}


@cache
def kept() -> dict[str, Help]:
    """Give the help of every code."""
    content = (files("webhook.cli") / KEPT).read_bytes()
    return msgspec.json.decode(content, type=dict[str, Help])
