"""JUnit XML, which CI systems show as tests: a suite per file, a test case per workload."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET  # only written, never parsed

from webhook.cli.review.findings import FailOn, Level, findings_of
from webhook.cli.review.results import Review, WorkloadResult
from webhook.core.model.decision import Outcome

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(review: Review, fail_on: frozenset[FailOn]) -> str:
    """Return the review as test results: refused is a failure, unknown an error."""
    root = ET.Element("testsuites", name="fairgate review")
    for source, workloads in groupby(review.workloads, key=lambda result: result.place.source):
        _add_suite(root, source, list(workloads), fail_on)
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_suite(root: ET.Element, source: str, workloads: Sequence[WorkloadResult], fail_on: frozenset[FailOn]) -> None:
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
