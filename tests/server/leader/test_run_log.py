"""Runs of the watch's pods, as the server decodes them."""

import msgspec

from tests import builders as b
from tests.core.support.make import resident, world
from webhook.kube.objects import keys, objects
from webhook.server.leader.start_scores import RunLog


def decoded(phase, *, started="2026-01-01T00:00:00Z"):
    made = b.pod("p", annotations={keys.RUN_TIME: "2h"}, gpus=1)
    made["status"] = {"phase": phase, "startTime": started}
    return msgspec.json.decode(msgspec.json.encode(made), type=objects.Pod)


def test_running_pods_that_are_charged_are_remembered_and_ended_when_they_go():
    seen, place = [], world()
    place.set_pod(resident(2, uid="u", node="n0", user="ann"))
    log = RunLog(place, lambda *what: seen.append(what[0]), clock=lambda: 1767225600.0 + 90)
    log.note("pods", decoded("Pending"), "u")
    log.note("pods", decoded("Running", started=""), "u")
    log.note("pods", decoded("Running"), "not charged")
    assert list(log.runs) == []
    log.note("pods", decoded("Running"), "u")
    log.note("pods", decoded("Running"), "u")
    [run] = log.runs
    assert (run.started, run.ended, run.team, run.user) == (1767225600, 0, "team-a", "ann")
    assert run.run_time.stated == 7200
    log.note("nodes", None, "u")
    assert [run.ended for run in log.runs] == [0]
    log.note("pods", None, "u")
    assert [run.ended - run.started for run in log.runs] == [90]
    assert seen == ["pods"] * 5 + ["nodes", "pods"], "everything is handed on"
