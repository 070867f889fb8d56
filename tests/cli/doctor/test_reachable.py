"""The connection from the API server to Fairgate, which doctor checks by a dry run."""

from dataclasses import replace

import pytest

from tests.cli.doctor.stage import HEALTHY, POLICY, findings
from webhook.cli.doctor.checks import Check, State
from webhook.cluster.reads.installation import ReadForbidden
from webhook.core.model.policy import Enforcement
from webhook.kube.registration.inventory import Probe, ProbeOutcome

PROBES = {
    "failed": (Probe(ProbeOutcome.FAILED, "x509: unknown authority"), State.WRONG, "cannot reach Fairgate: x509"),
    "not called": (Probe(ProbeOutcome.NOT_CALLED, "without asking"), State.WRONG, "without asking"),
    "refused by others": (Probe(ProbeOutcome.UNKNOWN, "403 no"), State.UNKNOWN, "did not get to Fairgate"),
    "not allowed": (ReadForbidden("create pods in namespace vision"), State.UNKNOWN, "right to create pods"),
}


@pytest.mark.parametrize("name", PROBES)
def test_the_connection_from_the_api_server_is_checked_by_a_dry_run(name):
    probe, state, words = PROBES[name]
    [found] = [each for each in findings(replace(HEALTHY, probe=probe)) if each.check is Check.REACHABLE]
    assert found.state is state
    assert words in found.message
    assert found.remedy


def test_a_dry_run_that_would_wait_in_line_is_healthy_and_says_so():
    queued = Probe(ProbeOutcome.YES, "queued: waits: team vision holds 8 of 8")
    [found] = [each for each in findings(replace(HEALTHY, probe=queued)) if each.check is Check.REACHABLE]
    assert (found.state, found.remedy) == (State.OK, "")
    assert "team vision holds 8 of 8" in found.message


def test_a_dry_run_shows_nothing_if_fairgate_is_not_to_be_called():
    unasked = replace(HEALTHY, probe=Probe(ProbeOutcome.NOT_CALLED, "without asking"))
    shadow = replace(POLICY, enforce=Enforcement.SHADOW)
    for seen, want in (
        (replace(unasked, is_exempt=True), State.UNKNOWN),
        (replace(unasked, namespace="kube-system"), State.UNKNOWN),
        (replace(unasked, policy=shadow), State.SKIPPED),
    ):
        [found] = [each for each in findings(seen) if each.check is Check.REACHABLE]
        assert found.state is want
