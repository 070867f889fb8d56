"""Runs of the watch's pods, as the server decodes them."""

import msgspec

from tests import builders as b
from webhook.kube.objects import keys, objects
from webhook.server.leader.run_log import RunLog


def decoded(phase, *, started="2026-01-01T00:00:00Z", team="a"):
    labels = {keys.TEAM: team} if team else {}
    made = b.pod("p", labels=labels, annotations={keys.RUN_TIME: "2h"}, gpus=1)
    made["status"] = {"phase": phase, "startTime": started}
    return msgspec.json.decode(msgspec.json.encode(made), type=objects.Pod)


def test_running_pods_are_remembered_and_ended_when_they_go():
    seen = []
    log = RunLog(lambda *what: seen.append(what[0]), clock=lambda: 1767225600.0 + 90)
    log.note("pods", decoded("Pending"), "u")
    log.note("pods", decoded("Running", team=""), "v")
    assert list(log.runs) == []
    log.note("pods", decoded("Running"), "default/p")
    log.note("pods", decoded("Running"), "default/p")
    [run] = log.runs
    assert (run.started, run.ended, run.team, run.run_time.stated) == (1767225600, 0, "a", 7200)
    log.note("nodes", None, "default/p")
    assert [run.ended for run in log.runs] == [0]
    log.note("pods", None, run.uid)
    assert [run.ended - run.started for run in log.runs] == [90]
    assert seen == ["pods"] * 4 + ["nodes", "pods"], "everything is handed on"
