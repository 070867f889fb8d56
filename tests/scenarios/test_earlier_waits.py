"""How long the last pods waited in line, and what users say of their runs, against a real control plane."""

import json

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.test_queue import QUEUES, SIZE, line_of, shown
from webhook.server.leader.waiting_reasons import PUBLISH_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

RUN_TIME = "fairgate.dev/run-time"


def saying(made, text):
    made["metadata"].setdefault("annotations", {})[RUN_TIME] = text
    return made


def test_pods_that_waited_say_how_long_to_those_behind_them_and_to_the_next_leader(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        a = fairgate.team_a
        create_pod(cluster, a, pod("holder", gpus=8, **SIZE))
        wait_bound(cluster, a, "holder")
        for name in ("one", "other"):
            create_pod(cluster, a, saying(pod(name, gpus=8, **SIZE), "2h"))
        found = wait_for(cluster, lambda: line_of(fairgate, pods=2), what="two queued pods")
        assert [each["earlierStarts"] for each in found["pods"]] == [None, None], "the holder was never in the queue"
        assert [each["statedRunTime"] for each in found["pods"]] == [7200, 7200]
        cluster.kubectl("delete", "pod", "holder", "-n", a, "--grace-period=0", "--force")
        [last] = wait_for(cluster, lambda: line_of(fairgate, pods=1), what="one is released")["pods"]
        earlier = wait_for(
            cluster,
            lambda: line_of(fairgate, pods=1)["pods"][0]["earlierStarts"],
            what="its wait is published",
            timeout=PUBLISH_SECONDS + 60,
        )
        assert earlier["starts"] == 1
        assert 0 <= earlier["shortestSeconds"] == earlier["longestSeconds"] <= 600
        assert "last 1: " in shown(fairgate, "queue").stdout
        assert "the last pod of 8 GPUs in team" in shown(fairgate, "explain", f"pod/{last['name']}", "-n", a).stdout


def test_what_a_workload_says_comes_to_its_pods_and_what_cannot_be_read_is_a_warning(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        a = fairgate.team_a
        stated = saying(job("stated", gpus=1, **SIZE), "2h")
        cluster.kubectl.run("create", "-f", "-", "-n", a, stdin=json.dumps(stated))
        [made] = wait_for(cluster, lambda: list_pods(cluster, a), what="the Job's pod")
        assert made["metadata"]["annotations"][RUN_TIME] == "2h"
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
