"""SARIF 2.1.0, which code scanning services and editors read."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.cli import codes
from webhook.cli.review.findings import Finding
from webhook.cli.review.results import NOTE
from webhook.cli.review.sources import STDIN_NAME
from webhook.core.model.reason import Code

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_ROOT: Final = "%SRCROOT%"
_PAGE: Final = "docs/codes.md"
_NOTE_HELP: Final = codes.Help("A note on how the manifest was read.", "None needed.")


def to_sarif(findings: Sequence[Finding], *, docs_url: str) -> str:
    """Return all findings as one run; every reason code is a rule, whose help page is below `docs_url`."""
    rules = sorted([*Code, NOTE])
    page = f"{docs_url.rstrip('/')}/{_PAGE}"
    driver = {"name": "Fairgate", "version": __version__, "rules": [_rule(code, page) for code in rules]}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {_ROOT: {"description": {"text": "The folder in which fairgate review ran."}}},
                "results": [_result(finding, rules.index(finding.code)) for finding in findings],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(code: str, page: str) -> dict[str, Any]:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).capitalize()
    entry = _NOTE_HELP if code == NOTE else codes.load_help()[code]
    return {
        "id": code,
        "name": code,
        "shortDescription": {"text": words},
        "fullDescription": {"text": _plain(entry.cause)},
        "helpUri": page,
        "help": {
            "text": f"{_plain(entry.cause)}\n\nWhat to do: {_plain(entry.remedy)}",
            "markdown": f"{entry.cause}\n\n**What to do:** {entry.remedy}",
        },
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place = {"artifactLocation": _location(finding.source), "region": {"startLine": finding.line}}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": str(finding.level),
        "message": {"text": finding.text},
        "locations": [{"physicalLocation": place}],
    }


def _location(source: str) -> dict[str, Any]:
    """Return a file's location: relative if it is below the current folder, otherwise a file URI."""
    if source == STDIN_NAME:
        return {"uri": "stdin", "description": {"text": "standard input"}}
    path = os.path.normpath(source)
    if os.path.isabs(path) or path.startswith(".."):
        return {"uri": Path(os.path.abspath(path)).as_uri()}
    return {"uri": quote(path), "uriBaseId": _ROOT}


def _plain(text: str) -> str:
    return text.replace("`", "")
