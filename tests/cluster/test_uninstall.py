"""`fairgate uninstall`: pods at a bounded pace, a failure ends it while processes run, and which processes run."""

import asyncio
import time

import pytest

from tests import builders as b
from tests.cluster.support.fake_api import Answer, Cut
from webhook.cluster import uninstall
from webhook.cluster.api.client import ClusterError
from webhook.cluster.uninstall import Scope, State, Step, Uninstallation
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import SILENT_SECONDS
from webhook.kube.objects import keys

PODS = "/api/v1/pods"


def put(api, *names):
    for name in names:
        marked = {"labels": {keys.TIER: "preemptible"}, "annotations": {keys.EVICT_AT: "2026-01-01T00:00:00Z"}}
        api.put(PODS, name, namespace="ns", metadata=marked, spec={})


def removal(connection, reported, **scope):
    return Uninstallation(connection, Scope(**scope), report=reported.append, waits=lambda _: None)


async def removed(connection, **scope):
    """Run it; returns its steps by name."""
    reported = []
    await removal(connection, reported, **scope).run()
    return {each.step: each for each in reported}


async def planned(connection):
    return {each.step: each.objects for each in await removal(connection, []).plan()}


def marked(api):
    return sorted(key for key, each in api.objects[PODS].items() if each["metadata"].get("annotations"))


@pytest.mark.parametrize(
    "faults",
    [
        [Answer(429, retry_after="3")],
        [Answer(500)],
        [Answer(403)],
        [Cut(is_carried_out=False)],
        [Answer(404)],
        [Answer(409)] * 4,
    ],
    ids=["too many", "a failure", "a guard that is about to go", "cut", "gone", "made again"],
)
async def test_a_pod_is_tried_again_and_one_that_is_gone_or_was_made_again_is_no_error(api, connection, faults):
    put(api, "p")
    api.faults["patch"].extend(faults)
    assert (await removed(connection))[Step.NOTICES].state is State.DONE


async def test_one_that_fails_for_good_is_named_the_others_are_done_and_no_process_is_stopped(api, connection):
    put(api, *(f"p{number}" for number in range(40)))
    labels = dict(keys.OWN_LABELS)
    api.put("/apis/apps/v1/deployments", "fairgate", namespace="own", metadata={"labels": labels}, spec={"replicas": 2})
    api.faults["patch /api/v1/namespaces/ns/pods/p7"].extend([Answer(500)] * 9)
    reported = []
    with pytest.raises(ClusterError, match="1 object could not be changed: run it again"):
        await removal(connection, reported).run()
    assert [each.step for each in reported] == [Step.NOTICES]
    assert reported[0].failed[0].startswith("Pod ns/p7: cannot patch pods: 500")
    assert marked(api) == ["ns/p7"]
    assert (await planned(connection))[Step.PROCESSES] == ("Deployment own/fairgate",)
    assert not [each.path for each in api.asked if each.path.endswith("/scale")]


async def test_so_many_pods_are_patched_in_a_second(api, connection):
    put(api, *(f"p{number}" for number in range(60)))
    began = asyncio.get_running_loop().time()
    await removed(connection, at_once=10, pods_per_second=5.0)
    assert marked(api) == []
    assert asyncio.get_running_loop().time() - began >= (60 - 10 - 1) / 5


async def test_minimums_leave_nothing_to_take_away(api, connection):
    """They are words of users, on their own objects."""
    for made in (*b.replicas("web", 2, annotations={"fairgate.dev/minimum": "1"}), b.autoscaler("web")):
        metadata, is_pod = made["metadata"], made["kind"] == "Pod"
        path = PODS if is_pod else "/apis/autoscaling/v2/horizontalpodautoscalers"
        api.put(path, metadata["name"], namespace=metadata["namespace"], metadata=metadata, spec=made["spec"])
    assert not any((await planned(connection)).values())


def report(api, **ages):
    now = time.time()
    entry = {"component": "server", "version": "1", "policy": "p", "enforce": "enforce", "policyProblem": ""}
    replicas = {name: {**entry, "at": reports.written_at(now - age)} for name, age in ages.items()}
    api.put(reports.PATH, reports.REPLICAS, replicas=replicas)


async def test_a_process_that_reported_lately_runs_unless_its_report_stays_the_same(api, connection, monkeypatch):
    """Whatever its clock said: here it was hours ahead."""
    report(api, host_1=5, pod_b=SILENT_SECONDS + 60)
    assert (await planned(connection))[Step.PROCESSES] == ("server host",)
    report(api, host_1=-7200)
    looks, now = removal(connection, []), [1000.0]
    monkeypatch.setattr(uninstall.time, "monotonic", lambda: now[0])

    async def running():
        return next(each.objects for each in await looks.plan() if each.step is Step.PROCESSES)

    assert await running() == ("server host",)
    now[0] += SILENT_SECONDS + 1
    assert await running() == ()
    report(api, host_1=-7300)
    assert await running() == ("server host",)
