"""What processes report, as trouble for people."""

from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import certificate_to_pem, make_ca, make_leaf, new_key
from tests.addons.messages.made import NOW
from webhook.addons.messages.alerts import Severity, Subject
from webhook.addons.messages.server import trouble_states
from webhook.core.model.policy_addons import NotifyKind
from webhook.kube.ledger.reports import ReplicaReport, written_at


def report(*, age=0, **more):
    return ReplicaReport("server", written_at(NOW - age), "1", "abc", "enforce", **more)


def test_processes_without_trouble_are_no_news():
    assert trouble_states({"a": report(), "b": report(age=30)}, NOW) == {}


@pytest.mark.parametrize(
    ("found", "condition", "text"),
    [
        (report(not_ready=["certificate: expired at noon"]), "certificate", "expired at noon"),
        (report(not_ready=["ledger: no TeamLedgers"]), "ledger", "no TeamLedgers"),
        (report(not_ready=["world: pods: nothing for 130 s"]), "world", "pods: nothing for 130 s"),
        (report(not_ready=["elsewhere: why"]), "serving", "why"),
        (report(behind=["team vision: 3 resourceVersions behind"]), "ledger", "behind: team vision"),
        (report(policy_problem="a.yaml:3: teams"), "policy", "a.yaml:3: teams"),
        (report(registration="forbidden"), "registration", "forbidden"),
        (report(election="no right to get leases"), "election", "no right to get leases"),
        (report(stalled="the first pod"), "line", "the first pod"),
        (report(age=36), "process", "its last report is of 2026-"),
        (report(certificate="no PEM"), "certificate", "its certificate holds no readable PEM certificate"),
    ],
)
def test_each_trouble_has_its_condition_and_names_the_process(found, condition, text):
    [(subject, state)] = trouble_states({"a": found, "b": report()}, NOW).items()
    assert subject == Subject(NotifyKind.TROUBLE, condition, Severity.CRITICAL, "a")
    assert state.lines[0].startswith(text)
    assert state.settle_seconds >= 60, "a process that starts or drains is no trouble"


def test_each_process_with_a_trouble_is_an_alert_of_its_own():
    broken = report(not_ready=["ledger: away"])
    assert [each.process for each in trouble_states({"a": broken, "b": broken, "c": report()}, NOW)] == ["a", "b"]


def test_a_certificate_that_is_not_renewed_in_time():
    start = datetime.fromtimestamp(NOW, UTC)
    ca = make_ca(new_key(), now=start)
    leaf = make_leaf(ca, key=new_key().public_key(), hosts=["a.test"], now=start, lifetime=timedelta(days=12))
    pem = certificate_to_pem(leaf).decode()
    fresh = {"a": ReplicaReport("server", written_at(NOW + 9 * 86_400), "1", "a", "enforce", certificate=pem)}
    late = {"a": ReplicaReport("server", written_at(NOW + 11 * 86_400), "1", "a", "enforce", certificate=pem)}
    assert trouble_states(fresh, NOW + 9 * 86_400) == {}
    [state] = trouble_states(late, NOW + 11 * 86_400).values()
    assert "was not renewed and expires at 2026-" in state.lines[0]
