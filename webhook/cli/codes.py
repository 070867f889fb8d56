"""Cause and remedy of every reason code, for outputs that show them with a finding.

`make docs` generates `codes.json` in this folder from policies/README.md; a test compares them.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

FILE_NAME: Final = "codes.json"

_ROW: Final = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Help(msgspec.Struct, frozen=True):
    """Cause and remedy of a code, in Markdown without links."""

    cause: str
    remedy: str


def read_table(page: str) -> dict[str, Help]:
    """Parse the table of reason codes in the text of policies/README.md."""
    rows = _ROW.findall(page.partition("## Reason codes")[2])
    return {code: Help(_LINK.sub(r"\1", cause), _LINK.sub(r"\1", remedy)) for code, cause, remedy in rows}


@cache
def load_help() -> dict[str, Help]:
    """Return the help of every code."""
    content = (files("webhook.cli") / FILE_NAME).read_bytes()
    return msgspec.json.decode(content, type=dict[str, Help])
