"""What `fairgate review` predicts is what happens: the same manifests, reviewed and then applied."""

import json
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from tests.control_plane.objects import job
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.standing_fairgate import ROOT, TIER, serve_fairgate
from tests.scenarios.test_greedy_team import deployment

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "6", "memory": "48Gi"}


def reviewed(fairgate, folder, manifests):
    """Review manifests against the live cluster; returns pods by workload, tier and outcome."""
    file = folder / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    command = [sys.executable, "-m", "webhook", "review", "--policy", fairgate.policy, "--cluster"]
    options = ["--kubeconfig", fairgate.cluster.kubeconfig, "-n", fairgate.team_a, "-o", "json", file]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    found = Counter()
    for workload in json.loads(done.stdout)["workloads"]:
        for pods in workload["pods"]:
            found[workload["name"], pods["tier"], pods["outcome"]] += pods["count"]
    return done.returncode, found


def test_controllers_create_the_pods_that_expansion_predicts(cluster, tmp_path):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, limit_a=30) as fairgate:
        held = job("held", pods=2, gpus=4, **SIZE)
        cluster.kubectl.apply([held], "-n", fairgate.team_a)
        wait_for(cluster, lambda: fairgate.charged("a") == 8, what="8 GPUs charged")
        manifests = [job("train", pods=4, gpus=2, **SIZE), deployment("serve", 17, gpus=1, **SIZE), held]
        status, predicted = reviewed(fairgate, tmp_path, manifests)
        assert status == 1
        assert predicted == {
            ("train", "guaranteed", "admitted"): 4,
            ("serve", "guaranteed", "admitted"): 4,
            ("serve", "preemptible", "admitted"): 10,
            ("serve", None, "refused"): 3,
            ("held", "guaranteed", "admitted"): 2,
        }
        cluster.kubectl.apply(manifests[:1], "-n", fairgate.team_a)
        wait_for(cluster, lambda: fairgate.charged("a") == 16, what="the first is charged")
        status, predicted = reviewed(fairgate, tmp_path, manifests[1:2])
        cluster.kubectl.apply(manifests[1:2], "-n", fairgate.team_a)
        want = sum(count for (_, _, outcome), count in predicted.items() if outcome == "admitted")

        def tiers():
            pods = [pod for pod in list_pods(cluster, fairgate.team_a) if pod["metadata"]["name"].startswith("serve-")]
            return Counter(pod["metadata"]["labels"][TIER] for pod in pods)

        wait_for(cluster, lambda: tiers().total() == want, what=f"{want} pods of serve")
        assert tiers() == {tier: count for (_, tier, outcome), count in predicted.items() if outcome == "admitted"}
        assert status == 1
