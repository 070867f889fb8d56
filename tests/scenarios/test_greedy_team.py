"""One team requests everything: its 21st GPU is refused with the numbers, and the other team gets its whole share."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_for
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "6", "memory": "48Gi"}


def running(cluster, namespace):
    return [found for found in list_pods(cluster, namespace) if found["status"].get("phase") == "Running"]


def deployment(name, replicas, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(**spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


@pytest.mark.promise
def test_the_21st_gpu_is_refused_with_the_numbers_and_the_other_team_gets_its_20(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate:
        cluster.kubectl.apply([deployment("serve", 8, gpus=1, **SIZE)], "-n", fairgate.team_a)
        cluster.kubectl.apply([job("train", pods=4, gpus=2, **SIZE)], "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(running(cluster, fairgate.team_a)) == 12, what="eight replicas and four job pods")
        overrides = json.dumps({"apiVersion": "v1", "spec": pod_spec(gpus=4, **SIZE)})
        run = ["run", "bare", "--image=example.invalid/train:1", "-n", fairgate.team_a, f"--overrides={overrides}"]
        cluster.kubectl(*run)
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="20 GPUs charged")
        fairgate.wait_seen("a")

        refused = cluster.kubectl.run(*(word if word != "bare" else "one-more" for word in run))
        assert refused.returncode != 0
        for words in (
            'admission webhook "',
            "exceeded quota: team a: requested 4, limit 20, used 20, reserved 0; largest holders: ",
            f"{fairgate.team_a}/Job/train 8",
            f"{fairgate.team_a}/ReplicaSet/serve-",
            "(TeamLimitExceeded)",
        ):
            assert words in refused.stderr

        cluster.kubectl.apply([job("all", pods=10, gpus=2, **SIZE)], "-n", fairgate.team_b)
        wait_for(cluster, lambda: len(running(cluster, fairgate.team_b)) == 10, what="team b has all of its 20")
        assert fairgate.charged("b") == 20


@pytest.mark.promise
def test_forty_concurrent_requests_get_exactly_twenty_gpus(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate:

        def create(number):
            try:
                create_pod(cluster, fairgate.team_a, pod(f"racer-{number}", gpus=1, **SIZE))
            except ApiError as error:
                return str(error)
            return None

        with ThreadPoolExecutor(40) as pool:
            refusals = [text for text in pool.map(create, range(40)) if text is not None]
        assert len(refusals) == 20
        assert all("exceeded quota: team a: requested 1, limit 20" in text for text in refusals)
        assert len(list_pods(cluster, fairgate.team_a)) == 20
        wait_for(cluster, lambda: len(running(cluster, fairgate.team_a)) == 20, what="all twenty run")
        assert fairgate.charged("a") == 20


def test_a_job_over_the_limit_has_events_and_continues_when_there_is_room(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("holder", gpus=10, **SIZE))
        cluster.kubectl.apply([job("big", pods=2, gpus=6, **SIZE)], "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(running(cluster, fairgate.team_a)) == 2, what="the holder and one pod of the job")
        message = wait_for(
            cluster,
            lambda: [
                e["message"]
                for e in cluster.kubectl.json("get", "events", "-n", fairgate.team_a)["items"]
                if e["reason"] == "FailedCreate"
            ],
            what="the refusal among the job's events",
        )
        sums = re.search(r"exceeded quota: team a: requested 6, limit 20, used (\d+), reserved (\d+);", message[0])
        assert sum(map(int, sums.groups())) == 16, "the job's first pod may not have been seen yet"
        cluster.kubectl("delete", "pod", "holder", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: len(running(cluster, fairgate.team_a)) == 2, what="both pods of the job")
