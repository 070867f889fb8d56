"""Which processes run, by what they report."""

import time

from webhook.cluster.uninstall import survey
from webhook.cluster.uninstall.survey import SILENT_SECONDS, running
from webhook.kube.ledger import reports


def put(api, **ages):
    now = time.time()
    entries = {
        name: {
            "component": "server",
            "at": reports.written_at(now - age),
            "version": "1",
            "policy": "p",
            "enforce": "enforce",
            "policyProblem": "",
        }
        for name, age in ages.items()
    }
    api.put(reports.PATH, reports.REPLICAS, replicas=entries)


async def test_without_a_report_no_process_runs(connection):
    assert await running(connection) == []


async def test_a_process_that_reported_lately_runs(api, connection):
    put(api, host_1=5, pod_b=SILENT_SECONDS + 60)
    assert await running(connection) == ["server host"]


async def test_a_report_that_stays_the_same_is_of_no_process_whatever_its_clock_said(api, connection, monkeypatch):
    """The clock of the process was hours ahead."""
    put(api, host_1=-7200)
    seen, now = {}, [1000.0]
    monkeypatch.setattr(survey.time, "monotonic", lambda: now[0])
    assert await running(connection, seen=seen) == ["server host"]
    now[0] += SILENT_SECONDS + 1
    assert await running(connection, seen=seen) == []
    put(api, host_1=-7300)
    assert await running(connection, seen=seen) == ["server host"]
