"""Likely starts in a new cluster: users say how long their pods run, and the ranges hold."""

import json
import time

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_queue import QUEUES, SIZE, line_of, shown, waits

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

RUN_TIME, LIMIT = "fairgate.dev/run-time", "fairgate.dev/run-time-limit"
STATED_SECONDS = 20


def saying(made, text):
    made["metadata"].setdefault("annotations", {})[RUN_TIME] = text
    return made


def test_in_a_new_cluster_a_line_of_two_teams_has_ranges_and_they_hold(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        a, b = fairgate.team_a, fairgate.team_b
        made = time.time()
        create_pod(cluster, a, saying(pod("holder", gpus=8, **SIZE), f"{STATED_SECONDS}s"))
        wait_bound(cluster, a, "holder")
        for namespace, name in ((a, "next"), (b, "later"), (b, "last")):
            create_pod(cluster, namespace, saying(pod(name, gpus=8, **SIZE), f"{STATED_SECONDS}s"))
        found = wait_for(cluster, lambda: line_of(fairgate, pods=3), what="three pods in line")
        asked = time.time()
        ranges = {each["name"]: each["likelyStart"] for each in found["pods"]}
        assert all(ranges.values()), found
        assert min(each["latestSeconds"] for each in ranges.values()) < 10 * STATED_SECONDS
        assert [each["statedRunTime"]["seconds"] for each in found["pods"]] == [STATED_SECONDS] * 3
        assert "unknown" not in shown(fairgate, "queue").stdout

        left = {"next": a, "later": b, "last": b}

        def started():
            return next((name for name, namespace in left.items() if not waits(cluster, namespace, name)), None)

        running = ("holder", a)
        for _ in range(2):
            time.sleep(max(0.0, made + STATED_SECONDS - time.time()))
            cluster.kubectl("delete", "pod", running[0], "-n", running[1], "--grace-period=0", "--force")
            name = wait_for(cluster, started, what="a pod is released")
            made, running = time.time(), (name, left.pop(name))
            waited = made - asked
            assert ranges[name]["earliestSeconds"] - 2 <= waited <= ranges[name]["latestSeconds"] + 2, (name, ranges)


def test_what_a_workload_says_comes_to_its_pods_and_what_cannot_be_read_is_a_warning(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        a = fairgate.team_a
        stated = saying(job("stated", gpus=1, **SIZE), "2h")
        stated["spec"]["activeDeadlineSeconds"] = 9000
        cluster.kubectl.run("create", "-f", "-", "-n", a, stdin=json.dumps(stated))
        [made] = wait_for(cluster, lambda: list_pods(cluster, a), what="the Job's pod")
        annotations = made["metadata"]["annotations"]
        assert (annotations[RUN_TIME], annotations[LIMIT]) == ("2h", "9000s")
        for name, text in (("bare", "2 hours"), ("negative", "-1h"), ("years", "87600h")):
            created = cluster.kubectl.run(
                "create", "-f", "-", "-n", a, stdin=json.dumps(saying(pod(name, gpus=1, **SIZE), text))
            )
            assert created.returncode == 0
            assert created.stderr.count("is ignored: write a duration such as 30m or 2h") == 1, created.stderr
        bad = saying(job("bad", gpus=1, **SIZE), "soon")
        created = cluster.kubectl.run("create", "-f", "-", "-n", a, stdin=json.dumps(bad))
        assert created.stderr.count("annotation fairgate.dev/run-time 'soon' is ignored") == 1, created.stderr
        assert get_pod(cluster, a, "bare")["metadata"]["annotations"][RUN_TIME] == "2 hours"
