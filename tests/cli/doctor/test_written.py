"""What doctor writes: a table for people, of which docs/tasks/troubleshoot.md shows a part, and data for scripts."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.cli import golden
from tests.cli.doctor.stage import HEALTHY, evidence, findings, process, processes
from tests.docs import pages
from webhook.cli.doctor.checks import Check, Finding, State, exit_status
from webhook.cli.doctor.run import DoctorReport, report_of, to_table
from webhook.cluster.reads.installation import ReadForbidden, ReadValue
from webhook.kube.ledger.reports import Report
from webhook.kube.registration.inventory import Probe, ProbeOutcome, created_probe, probe_pod, refused_probe

PAGE = Path(__file__).parents[3] / "docs" / "tasks" / "troubleshoot.md"
GOLDEN = Path(__file__).parent / "golden"


def broken():
    """An edit that one evictor lacks, a webhook that times out, ledgers that may not be read."""
    late = processes(**{"pod-2_d": process("evictor", policy="0a1b2c3d4e5f")})
    cause = 'Internal error occurred: failed calling webhook "validate.fairgate.dev": context deadline exceeded'
    seen = HEALTHY.__class__(
        evidence(replicas=ReadValue(Report(replicas=late)), ledgers=ReadForbidden("list teamledgers")),
        HEALTHY.policy,
        Probe(ProbeOutcome.FAILED, cause),
        "vision",
        is_exempt=False,
    )
    return findings(seen)


def test_the_docs_page_shows_a_part_of_the_table():
    printed = to_table(broken(), width=118, is_colored=False)
    golden.check(GOLDEN / "broken.txt", printed)
    [shown] = [block.text for block in pages.blocks(PAGE) if block.text.startswith("policy ")]
    assert shown in printed, f"docs/tasks/troubleshoot.md shows something else than\n{printed}"


def test_the_docs_page_has_every_check_and_every_exit_status():
    text = PAGE.read_text()
    assert set(re.findall(r"^\| `([a-z]+)` \|", text, flags=re.MULTILINE)) >= {check.value for check in Check}


@pytest.mark.parametrize(
    ("states", "want", "healthy"),
    [
        ((State.OK, State.SKIPPED), 0, True),
        ((State.OK, State.UNKNOWN), 2, None),
        ((State.UNKNOWN, State.WRONG), 1, False),
    ],
)
def test_exit_status_and_data_agree(states, want, healthy):
    found = [Finding(Check.SERVER, state, "said", "") for state in states]
    assert exit_status(found) == want
    printed = msgspec.json.decode(msgspec.json.encode(report_of(found)), type=DoctorReport)
    assert printed.healthy is healthy
    assert [each.state for each in printed.findings] == list(states)


REFUSALS = {
    'Internal error occurred: failed calling webhook "validate.fairgate.dev": x509: unknown': ProbeOutcome.FAILED,
    'failed calling webhook "other.example.org": connection refused': ProbeOutcome.UNKNOWN,
    'admission webhook "mutate.fairgate.dev" denied the request: exceeded quota': ProbeOutcome.YES,
    'admission webhook "other.example.org" denied the request: no': ProbeOutcome.UNKNOWN,
    'admission webhook "validate.fairgate.dev" denied the request: MutationMissing': ProbeOutcome.FAILED,
    'pods "x" is forbidden: exceeded quota: compute': ProbeOutcome.UNKNOWN,
}


@pytest.mark.parametrize("text", REFUSALS)
def test_fairgates_refusals_are_recognized_by_their_text(text):
    assert refused_probe(500, text).reached is REFUSALS[text]


def test_the_probe_requests_a_resource_that_the_policy_counts():
    resources = probe_pod(HEALTHY.policy)["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": "1"}}
    assert created_probe({"metadata": {}}).reached is ProbeOutcome.NOT_CALLED
