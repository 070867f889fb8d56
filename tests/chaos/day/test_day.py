"""A day of failures: each strikes a whole installation with a light load, and a table says what users noticed.

`make chaos-day` runs all, `CHAOS_DAY=etcd make chaos-day` one. Only counts, order and sums are asserted; seconds are
in the table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos.day.attempts import Attempts, attempting
from tests.chaos.day.audit import PlainPods, plain_pods
from tests.chaos.day.failures import FAILURES, Failure, Scene
from tests.chaos.day.installation import Installation, installed
from tests.chaos.day.workload import BORROWERS, OWNERS, Workload
from tests.control_plane.cluster import find_binaries
from tests.control_plane.commands import audit_log
from tests.control_plane.workbench import make_nodes, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CHOSEN = os.environ["CHAOS_DAY"]
OUTSIDER = Path(__file__).with_name("outsider.py")
MANY = 10
LOOKS, LOOK_SECONDS = 40, 2.0
RECLAIMED = 12
"""Replicas of the owner after a failure: more than there is room for beside the borrower."""


class Row(NamedTuple):
    """A line of the table; times in seconds."""

    failure: str
    lasted: float
    first: float
    gap: float
    plain: PlainPods
    agreed: float
    reclaimed: float

    def cells(self) -> list[str]:
        """The cells as text."""
        times = [f"{each:.1f} s" for each in (self.lasted, self.first, self.gap)]
        plain = f"0 of {self.plain.created} (slowest {self.plain.slowest_seconds:.2f} s)"
        return [self.failure, *times, plain, f"{self.agreed:.0f} s", f"{self.reclaimed:.0f} s"]


@pytest.mark.parametrize("name", [*FAILURES] if CHOSEN == "all" else CHOSEN.split())
def test_after_a_failure_gpu_pods_are_created_again_and_no_other_pod_noticed(start_control_plane, note_row, name):
    failure = FAILURES[name]
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 3, gpus=8)
    with installed(cluster, *failure.flags) as running:
        workload = Workload(cluster)
        workload.start()
        agree(running)
        note_row(struck(running, workload, failure).cells())


def struck(running: Installation, workload: Workload, failure: Failure) -> Row:
    """Have a failure strike; assert what holds afterwards, and return what users noticed."""
    cluster, scene = running.cluster, Scene(running, workload)
    failure.prepare(scene)
    running.kubelet.restarts.clear()
    gpu, plain = Attempts("gpu", 1), Attempts("plain", 0)
    with attempting(cluster, plain):
        with attempting(cluster, gpu):
            wait_for(cluster, lambda: len(gpu.made) > 2 and gpu.has_created(0.0), what="GPU pods are created")
            began = time.monotonic()
            failure.strike(scene)
            ended = time.monotonic()
            wait_for(cluster, lambda: gpu.has_created(ended), what="a GPU pod is created", timeout=120)
            workload.wait_created()
            failure.check(scene)
        agree(running)
        agreed = time.monotonic()
        workload.scale(OWNERS, RECLAIMED)
        workload.wait_running(OWNERS)
        reclaimed = time.monotonic()
        workload.scale(BORROWERS, 4)
        workload.wait_running()
        agree(running)
    assert [why for why in gpu.failures(began) if "exceeded quota" in why] == []
    assert dict(running.kubelet.restarts) == failure.restarts
    found = plain_pods(audit_log(cluster.folder))
    assert (found.refused, found.delayed) == ([], [])
    assert plain.has_created(began)
    assert found.created > MANY, "the test is without effect"
    return Row(
        failure.title,
        ended - began,
        gpu.seconds_until_created(ended),
        gpu.longest_gap(began),
        found,
        agreed - ended,
        reclaimed - agreed,
    )


def agree(running: Installation) -> None:
    """Wait until the outsider finds that all sums agree."""
    kubectl, kubeconfig = find_binaries()["kubectl"], running.cluster.kubeconfig
    command = [sys.executable, OUTSIDER, kubectl, kubeconfig, str(len(running.kubelet.commands))]

    for _ in range(LOOKS):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(LOOK_SECONDS)
    pytest.fail(f"the sums do not agree: {done.stdout or done.stderr}")
