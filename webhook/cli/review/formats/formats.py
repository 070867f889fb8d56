"""SARIF, JUnit, GitHub, Markdown.

GitHub workflow commands: annotations at file and line in a pull request.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET  # only written, never parsed

import yaml
from rich.syntax import Syntax
from rich.text import Text

from webhook import __version__
from webhook.cli import codes
from webhook.cli.grid import Column, Grid, Line, listing, number
from webhook.cli.review.collect import STDIN_NAME
from webhook.cli.review.results import (
    NOTE,
    OUTCOMES,
    WORDS,
    Finding,
    Level,
    PodGroup,
    Review,
    Strictness,
    WorkloadResult,
    WorldFacts,
    findings,
    findings_of,
)
from webhook.cli.screen import Screen
from webhook.core.model.amounts import gpus_text, plural, plural_gpus, printable, span
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Outcome
from webhook.core.model.reasons import Code

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


# JUnit XML, which CI systems show as tests: a suite per file, a test case per workload.


_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(review: Review, fail_on: Strictness) -> str:
    """Return the review as test results: refused is a failure, unknown an error."""
    root = ET.Element("testsuites", name="fairgate review")
    for source, workloads in groupby(review.workloads, key=lambda result: result.place.source):
        _add_suite(root, source, list(workloads), fail_on)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_suite(root: ET.Element, source: str, workloads: Sequence[WorkloadResult], fail_on: Strictness) -> None:
    suite = ET.SubElement(root, "testsuite", name=_xml(source), file=_xml(source))
    for result in workloads:
        name = _xml(f"{result.title} (document {result.place.document})".lstrip())
        case = ET.SubElement(suite, "testcase", classname=_xml(source), name=name)
        findings = list(findings_of(result, fail_on))
        errors = [finding for finding in findings if finding.level is Level.ERROR]
        if errors:
            kind = "error" if result.outcome is Outcome.SKIP else "failure"
            found = ET.SubElement(case, kind, type=errors[0].code, message=_xml(errors[0].text))
            found.text = _xml("\n".join(f"{finding.source}:{finding.line}: {finding.text}" for finding in errors))
        if warnings := [finding.text for finding in findings if finding.level is Level.WARNING]:
            ET.SubElement(case, "system-out").text = _xml("\n".join(warnings))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


# SARIF 2.1.0, which code scanning services and editors read.


SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_ROOT: Final = "%SRCROOT%"
_PAGE: Final = "docs/reference/codes.md"
_NOTE_HELP: Final = codes.Help("A note on how the manifest was read.", "None needed.")


def to_sarif(findings: Sequence[Finding], *, docs_url: str) -> str:
    """Return all findings as one run; every reason code is a rule, with its help, and a page below `docs_url`."""
    rules = sorted([*Code, NOTE])
    page = f"{docs_url.rstrip('/')}/{_PAGE}" if docs_url else ""
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
        **({"helpUri": page} if page else {}),
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


# Texts that the formats for people share: the summary, the world, and what a patch changes.


def summary(review: Review) -> str:
    """Return the number of workloads by outcome, and their total request."""
    concerned = [result for result in review.workloads if result.asks_gpus]
    numbers = {outcome: sum(1 for result in concerned if result.outcome is outcome) for outcome in OUTCOMES}
    outcomes = ", ".join(f"{number} {WORDS[outcome]}" for outcome, number in numbers.items() if number) or "none"
    gpus = plural_gpus(sum(group.gpus for result in concerned for group in result.pods))
    rest = [
        f"{number} {what}"
        for number, what in (
            (len(review.workloads) - len(concerned), "without GPUs"),
            (review.others, "without pods"),
            (review.skipped, "not Kubernetes objects"),
        )
        if number
    ]
    others = f"; other documents: {', '.join(rest)}" if rest else ""
    return f"{plural(len(concerned), 'GPU workload')}: {outcomes}; {gpus} requested{others}"


def world(facts: WorldFacts) -> str:
    """Return a line with the world of the review, its age and size."""
    source = {
        "empty": "no world: limits only, with nothing used and unlimited capacity",
        "file": f"world {facts.name}, {span(facts.age_seconds or 0)} old",
        "cluster": f"the live cluster of {facts.name}",
    }[facts.source]
    size = "" if facts.source == "empty" else f": {plural(facts.nodes, 'node')}, {plural(facts.pods, 'pod')}"
    return f"reviewed against {source}{size}; policy {facts.policy}"


def node_names(group: PodGroup, *, most: int = 3) -> str:
    """Return the first choices, and the number of further ones."""
    more = len(group.nodes) - most
    return ", ".join(group.nodes[:most]) + (f" and {more} more" if more > 0 else "")


def diff(result: WorkloadResult, group: PodGroup) -> str:
    """Return Fairgate's changes to the first pod of a group, as a unified diff of YAML."""
    if group.patch is None:
        return ""
    name = printable(f"{result.title}{f' ({group.role})' if group.role else ''}")
    before, after = _yaml(group.patch.before), _yaml(group.patch.after)
    lines = difflib.unified_diff(before, after, f"{name}, as written", f"{name}, admitted", lineterm="", n=2)
    return "\n".join(map(printable, lines))


def _yaml(pod: Mapping[str, Any]) -> list[str]:
    return yaml.safe_dump(dict(pod), sort_keys=False, allow_unicode=True, width=1000).splitlines()


# Markdown for a comment on a pull request, or for the summary of a CI job.


_MARKS = {Outcome.ADMIT: "✅", Outcome.QUEUE: "⏳", Outcome.DENY: "❌", Outcome.SKIP: "❔"}
_HEADINGS = {
    Outcome.ADMIT: "all admitted",
    Outcome.QUEUE: "some would be queued",
    Outcome.DENY: "some would be refused",
    Outcome.SKIP: "some could not be evaluated",
}


def to_markdown(review: Review, fail_on: Strictness, *, with_patch: bool = False) -> str:
    """Return the review as Markdown for GitHub and GitLab."""
    lines = [f"### Fairgate: {_HEADINGS[review.outcome]}", ""]
    rows = [(result, group) for result in review.workloads for group in result.pods if group.asks_gpus and result.kind]
    if rows:
        lines += ["| | workload | role | pods | GPUs each | team | tier | first choices |"]
        lines += ["|---|---|---|--:|--:|---|---|---|"]
        lines += [_row(result, group) for result, group in rows]
        lines.append("")
    listed = findings(review, fail_on)
    for finding in listed:
        place = f"{_quoted(finding.source)}:{finding.line}"
        lines.append(f"- `{place}` **{finding.level}**: {_escaped(finding.text)}")
    lines += [""] if listed else []
    if with_patch:
        for result, group in rows:
            if text := diff(result, group):
                lines += ["<details><summary>" + _escaped(result.title) + "</summary>", "", "````diff", text, "````"]
                lines += ["", "</details>", ""]
    lines += [
        _escaped(summary(review)) + ".",
        "",
        f"<sub>{_escaped(world(review.world))}</sub>",
    ]
    return "\n".join(lines) + "\n"


def _row(result: WorkloadResult, group: PodGroup) -> str:
    cells = (
        f"{_MARKS[group.outcome]} {WORDS[group.outcome]}",
        result.title,
        group.role,
        "?" if group.count is None else str(group.count),
        gpus_text(group.demand.gpus) if group.demand is not None and group.demand.gpus else "?",
        group.team or "",
        group.tier or "",
        node_names(group),
    )
    return f"| {' | '.join(map(_escaped, cells))} |"


def _quoted(text: str) -> str:
    """Return a text that can stand between backquotes."""
    return printable(text).replace("`", "'")


def _escaped(text: str) -> str:
    text = printable(" ".join(text.split()))
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, f"\\{mark}")
    return text


# A table for terminals, with the findings below it.


_STYLES = {Outcome.ADMIT: "green", Outcome.QUEUE: "yellow", Outcome.DENY: "bold red", Outcome.SKIP: "magenta"}
_DIFF = Syntax("", "diff", theme="ansi_dark")
_LEVELS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def to_table(review: Review, fail_on: Strictness, *, width: int, is_colored: bool, with_patch: bool = False) -> str:
    """Return the review as a table of this width."""
    screen = Screen(width=width, is_colored=is_colored)
    table = _table(review)
    if len(table):
        screen.show(table, "")
    causes = findings(review, fail_on)
    if causes:
        screen.show(*map(_cause, causes), "")
    if with_patch:
        for result in review.workloads:
            for group in result.pods:
                if text := diff(result, group):
                    screen.show_whole(_DIFF.highlight(text), "")
    screen.show(Line(summary(review)), Line(world(review.world)))
    return screen.text


def _table(review: Review) -> Grid:
    rows = [(result, group) for result in review.workloads for group in result.pods if group.asks_gpus and result.kind]
    has_roles, with_nodes = any(group.role for _, group in rows), any(group.nodes for _, group in rows)
    role = [Column("role", goes=3)] if has_roles else []
    nodes = [listing("first choices", goes=1)] if with_nodes else []
    numbers = number("pods"), number("each", goes=2), number("GPUs")
    table = Grid("outcome", "workload", *role, *numbers, Column("team", goes=4), "tier", *nodes)
    before: WorkloadResult | None = None
    for result, group in rows:
        title = result.title if result is not before else ""
        roles = [Line(group.role or "-")] if has_roles else []
        choices = [Line(node_names(group) or "-")] if with_nodes else []
        team = Line(group.team or "-")
        table.add_row(_outcome(group), Line(title), *roles, *_numbers(group), team, _tier(group), *choices)
        before = result
    return table


def _outcome(group: PodGroup) -> Text:
    return Line(WORDS[group.outcome], style=_STYLES[group.outcome])


def _numbers(group: PodGroup) -> list[Text]:
    count = "?" if group.count is None else str(group.count)
    is_known = group.demand is not None and group.demand.gpus > 0
    each = gpus_text(group.demand.gpus) if group.demand is not None and is_known else "?"
    gpus = gpus_text(group.gpus) if group.count is not None and is_known else "?"
    return [Line(count), Line(each), Line(gpus)]


def _tier(group: PodGroup) -> Text:
    return Line(group.tier or "-", style="yellow" if group.tier is Tier.PREEMPTIBLE else "")


def _cause(finding: Finding) -> Text:
    place = Line(f"{finding.source}:{finding.line}: ", style="bold")
    return place + Line(f"{finding.level}: ", style=_LEVELS[finding.level]) + Line(finding.text)
