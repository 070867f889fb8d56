"""Fairgate down, restarted, in a race, or with another policy: no limit is exceeded, and no other pod is delayed."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_for, wait_phase
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "2", "memory": "8Gi"}
PRIORITIES = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": preemption,
    }
    for name, value, preemption in (("fair-guaranteed", 1000, "PreemptLowerPriority"), ("fair-borrowed", -10, "Never"))
]


@pytest.mark.promise
def test_while_it_is_down_only_gpu_pods_wait_and_its_ledger_is_restored(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("before", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("before-too", gpus=5, **SIZE))
        fairgate.stop(signal.SIGKILL)
        create_pod(cluster, fairgate.team_a, pod("plain", **SIZE))
        with pytest.raises(ApiError, match="failed calling webhook"):
            create_pod(cluster, fairgate.team_a, pod("gpu", gpus=1, **SIZE))
        fairgate.start()
        assert fairgate.charged("a") == 15
        with pytest.raises(ApiError, match=r"exceeded quota: team a: requested 6, limit 20, used 15"):
            create_pod(cluster, fairgate.team_a, pod("too-much", gpus=6, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("after", gpus=5, **SIZE))


def test_a_lost_race_is_retried_without_a_message_to_the_user(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("first", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("second", gpus=9, **SIZE))

        def create(number):
            manifest = json.dumps(pod(f"racer-{number}", gpus=1, **SIZE))
            return cluster.kubectl.run("create", "-n", fairgate.team_a, "-f", "-", stdin=manifest)

        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(create, range(8)))
        assert [(answer.returncode, answer.stderr) for answer in done] == [(0, "")] * 8
        racers = fairgate.tiers(fairgate.team_a)[1:9]
        assert sorted(racers) == ["guaranteed"] + ["preemptible"] * 7, "one GPU of the share was left"


def test_the_api_server_accepts_the_priority_class_of_a_tier(cluster):
    make_nodes(cluster, 2)
    cluster.kubectl.apply(PRIORITIES)
    classes = "priorityClasses: {guaranteed: fair-guaranteed, preemptible: fair-borrowed}\n"
    with serve_fairgate(cluster, limit_a=40, policy=classes) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("inside", gpus=2, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("borrows", gpus=2, labels={TIER: "preemptible"}, **SIZE))
        for name, want in (
            ("inside", ("fair-guaranteed", 1000, "PreemptLowerPriority")),
            ("borrows", ("fair-borrowed", -10, "Never")),
        ):
            spec = wait_phase(cluster, fairgate.team_a, name, "Running")["spec"]
            assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == want


@pytest.mark.promise
def test_a_policy_edit_is_in_force_soon_and_a_broken_one_is_not(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster) as fairgate:
        file = fairgate.policy / "teams.yaml"
        good = file.read_text()
        file.write_text(good.replace('"limit": 20', '"limit": 3').replace('"guaranteed": 20', '"guaranteed": 2'))

        def is_refused():
            try:
                cluster.api.create(f"/api/v1/namespaces/{fairgate.team_a}/pods?dryRun=All", pod("p", gpus=4, **SIZE))
            except ApiError as refused:
                return "limit 3" in str(refused)
            return False

        wait_for(cluster, is_refused, what="the lower limit in force")
        file.write_text("teams: [")
        wait_for(cluster, lambda: "broken edit" in fairgate.get("/readyz"), what="the broken edit")
        assert is_refused(), "the last good policy stays"

        def events():
            events = cluster.kubectl.json("get", "events", "-n", "default", "--field-selector=reason=PolicyRefused")
            return [event for event in events["items"] if "a broken edit was ignored" in event["message"]]

        assert wait_for(cluster, events, what="an Event")[0]["involvedObject"]["name"] == "fairgate"
        assert "fairgate_policy_last_reload_successful 0.0" in fairgate.get("/metrics")
        assert list_pods(cluster, fairgate.team_a) == []


@pytest.mark.promise
def test_pools_and_taints_hold_on_the_real_scheduler(cluster):
    taint = {"key": "gpu-pool", "value": "fast", "effect": "NoSchedule"}
    make_nodes(cluster, 1, prefix="fast", labels={"pool": "fast"}, taints=[taint])
    make_nodes(cluster, 1, prefix="slow", labels={"pool": "slow"})
    pools = [
        {
            "name": "fast",
            "nodeSelector": {"pool": "fast"},
            "tolerations": [{"key": "gpu-pool", "operator": "Exists"}],
            "capabilities": ["nvlink"],
        },
        {"name": "slow", "affinity": [{"key": "pool", "operator": "NotIn", "values": ["fast"]}]},
    ]
    with serve_fairgate(cluster, policy=f"pools: {json.dumps(pools)}\n") as fairgate:
        asked = {"fairgate.dev/requires": "nvlink"}
        create_pod(cluster, fairgate.team_a, pod("linked", gpus=4, annotations=asked, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("pinned", gpus=4, annotations={"fairgate.dev/pool": "slow"}, **SIZE))
        for name, node in (("linked", "fast-0"), ("pinned", "slow-0")):
            wait_phase(cluster, fairgate.team_a, name, "Running")
            assert get_pod(cluster, fairgate.team_a, name)["spec"]["nodeName"] == node
        with pytest.raises(ApiError, match="PoolFull"):
            create_pod(cluster, fairgate.team_a, pod("full", gpus=8, annotations={"fairgate.dev/pool": "slow"}, **SIZE))
