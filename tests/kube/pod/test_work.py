"""What a pod has done: since when its present containers run, and since when it counts as running."""

import json

import msgspec
import pytest

from tests import builders as b
from webhook.kube.objects import objects
from webhook.kube.pod.outcomes import Work, work_of

TAKEN, FIRST, LATER = "2026-11-21T10:00:00Z", "2026-11-21T10:39:00Z", "2026-11-21T12:00:00Z"
T, F, L = 1795255200, 1795255200 + 39 * 60, 1795255200 + 7200


def status(name="train", *, runs=None, ended=None, restarts=0):
    if runs is not None:
        state = {"running": {"startedAt": runs}}
    else:
        state = {"waiting": {"reason": "CrashLoopBackOff"}} if ended is None else {"terminated": {"startedAt": ended}}
    return {"name": name, "restartCount": restarts, "state": state}


def work(*statuses, phase="Running", containers=None, **more):
    made = b.pod(node="n0", containers=containers)
    made["status"] = {"phase": phase, "startTime": TAKEN, "containerStatuses": list(statuses), **more}
    return work_of(msgspec.json.decode(json.dumps(made), type=objects.Pod))


@pytest.mark.parametrize(
    ("statuses", "want"),
    [
        ([status(runs=FIRST)], Work(F, F, is_working=True)),
        ([status()], Work(0, T)),
        ([status(restarts=7)], Work(0, T)),
        ([status(runs=LATER, restarts=1)], Work(L, T, is_working=True)),
        ([status(ended=FIRST)], Work(0, F)),
        ([{"name": "train"}], Work(0, T)),
        ([{"name": "train", "state": None}], Work(0, T)),
    ],
    ids=[
        "a pull is no work, and uses up no minimum runtime",
        "it never ran",
        "it crashes again and again",
        "a restart loses work, and earns no further minimum runtime",
        "it has ended",
        "no state",
        "a null",
    ],
)
def test_work_counts_from_the_present_containers(statuses, want):
    assert work(*statuses) == want


def test_of_several_the_last_start_counts_and_for_the_minimum_runtime_the_first():
    containers = [b.container("train"), b.container("loads")]
    found = work(status(runs=LATER), status("loads", runs=FIRST), containers=containers)
    assert found == Work(L, F, is_working=True)


def test_a_container_without_devices_does_not_work_in_place_of_one_with_devices():
    """A container that sleeps, or a proxy beside a broken program, changes nothing."""
    containers = [b.container("train"), b.container("proxy", gpus=None)]
    assert work(status(), status("proxy", runs=FIRST), containers=containers) == Work(0, T)
    crashing = work(status(runs=FIRST), status("proxy", restarts=9), containers=containers)
    assert crashing == Work(F, F, is_working=True)


def test_a_claim_is_a_device():
    claiming = {"name": "train", "resources": {"claims": [{"name": "gpu"}]}}
    found = work(status(), status("proxy", runs=FIRST), containers=[claiming, b.container("proxy", gpus=None)])
    assert not found.is_working


@pytest.mark.parametrize(("phase", "want"), [("Running", Work(T, T, is_working=True)), ("Pending", Work(T, T))])
def test_without_statuses_of_containers_the_phase_says_it(phase, want):
    assert work(phase=phase) == want
    assert work(phase=phase, containerStatuses=None) == want


def test_a_pod_without_a_status_has_done_nothing():
    assert work_of(msgspec.json.decode(json.dumps(b.pod()), type=objects.Pod)) == Work()
