"""Which processes run, by what they report."""

import time

from tests import builders as b
from webhook.cluster.uninstall import survey
from webhook.cluster.uninstall.removal import plan
from webhook.cluster.uninstall.survey import SILENT_SECONDS, Scope, Tempo, running
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


async def test_minimums_leave_nothing_to_take_away(api, connection):
    """They are words of users, on their own objects."""
    for made in (*b.replicas("web", 2, annotations={"fairgate.dev/minimum": "1"}), b.autoscaler("web")):
        metadata, is_pod = made["metadata"], made["kind"] == "Pod"
        path = "/api/v1/pods" if is_pod else "/apis/autoscaling/v2/horizontalpodautoscalers"
        api.put(path, metadata["name"], namespace=metadata["namespace"], metadata=metadata, spec=made["spec"])
    found = await survey.survey(connection, Scope(), Tempo())
    assert [step.objects for step in plan(found, Scope()) if step.objects] == []


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
