"""SARIF 2.1.0, which code scanning services and editors read."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.cli.review.findings import Finding

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(findings: Sequence[Finding]) -> str:
    """Write all findings as one run; every reason code is a rule."""
    codes = sorted({finding.code for finding in findings})
    driver = {"name": "Fairgate", "version": __version__, "rules": [_rule(code) for code in codes]}
    results = [_result(finding, codes.index(finding.code)) for finding in findings]
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).capitalize()
    return {"id": code, "name": code, "shortDescription": {"text": words}}


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(finding.source.removeprefix("./"))},
        "region": {"startLine": finding.line},
    }
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": str(finding.level),
        "message": {"text": finding.text},
        "locations": [{"physicalLocation": place}],
    }
