"""GitHub workflow commands: annotations at file and line in a pull request."""

from collections.abc import Iterable
from typing import Final

from webhook.cli.review.findings import Finding, Level
from webhook.core.model.text import printable

_COMMANDS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}


def to_github(findings: Iterable[Finding]) -> str:
    """Return each finding as a workflow command."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    place = f"file={_property(finding.source)},line={finding.line},title={_property(finding.code)}"
    return f"::{_COMMANDS[finding.level]} {place}::{_data(finding.text)}"


def _data(text: str) -> str:
    return "%0A".join(printable(line) for line in text.replace("%", "%25").split("\n"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
