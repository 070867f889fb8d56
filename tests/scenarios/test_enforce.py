"""From shadow mode to enforcement, with real kubectl: first nothing changes, then users are warned, then it counts."""

import json
import re
import subprocess

import pytest

from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_for, wait_phase
from tests.scenarios import serving
from tests.scenarios.standing_fairgate import TEAM, TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "6", "memory": "48Gi"}
MADE_BY_THE_SERVER = ("uid", "creationTimestamp", "managedFields", "resourceVersion")


def say(fairgate, mode):
    """Edit the policy, and wait until it is in force; then apply its manifests (docs/concepts/README.md)."""
    file = fairgate.policy / "teams.yaml"
    file.write_text(re.sub(r"(?m)^enforce: .*\n|\Z", "", file.read_text()) + f"enforce: {mode}\n")
    log = fairgate.cluster.processes.log_path(fairgate.replicas[0].name)
    wait_for(
        fairgate.cluster,
        lambda: (
            [json.loads(line) for line in log.read_text().splitlines() if '"policy loaded"' in line][-1]["enforce"]
            == mode
        ),
        what=f"policy says {mode}",
    )
    printed = serving.manifests(policy=fairgate.policy, url=fairgate.url, ca=fairgate.ca)
    fairgate.cluster.kubectl("apply", "-f", "-", stdin=printed)


def created(fairgate, name, **more):
    """Create a pod as a user does; returns kubectl's standard error."""
    made = pod(name, **{"gpus": 8, **SIZE, **more})
    done = fairgate.cluster.kubectl.run("create", "-n", fairgate.team_a, "-f", "-", stdin=json.dumps(made))
    return done.stderr


def as_created(fairgate):
    """A pod as it would be stored, without the API server's generated fields."""
    found = fairgate.cluster.api.create(
        f"/api/v1/namespaces/{fairgate.team_a}/pods", pod("same", gpus=2, **SIZE), dryRun="All"
    )
    for field in MADE_BY_THE_SERVER:
        found["metadata"].pop(field, None)
    for volume in found["spec"].get("volumes", ()):
        volume["name"] = volume["name"].rpartition("-")[0]
    for container in found["spec"]["containers"]:
        for mount in container.get("volumeMounts", ()):
            mount["name"] = mount["name"].rpartition("-")[0]
    return found


def reported(fairgate):
    log = fairgate.cluster.processes.log_path(fairgate.replicas[0].name)
    command = [*serving.FAIRGATE, "report", log, "-o", "json"]
    return json.loads(subprocess.run(command, cwd=serving.ROOT, capture_output=True, text=True, check=True).stdout)


@pytest.mark.promise
def test_from_shadow_to_enforce(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        mine = fairgate.team_a
        say(fairgate, "shadow")
        seen = as_created(fairgate)
        for number in range(3):
            assert created(fairgate, f"p{number}") == "", "no warning"
        for number in range(3):
            wait_phase(cluster, mine, f"p{number}", "Running")
        wait_for(cluster, lambda: fairgate.charged("a") == 24, what="all three counted")
        assert fairgate.metric("fairgate_would_decisions_total", outcome="deny", code="TeamLimitExceeded") == 1
        labels = [found["metadata"].get("labels", {}) for found in list_pods(cluster, mine)]
        assert not any(TIER in each or TEAM in each for each in labels)

        say(fairgate, "warn")
        output = created(fairgate, "p3", gpus=1)
        assert "Warning: Fairgate would refuse this pod (TeamLimitExceeded): team a: requested 1, limit 20" in output
        cluster.kubectl("delete", "pod", "p3", "-n", mine, "--wait=true")
        fairgate.stop()
        created(fairgate, "meanwhile", gpus=1)
        wait_phase(cluster, mine, "meanwhile", "Running")
        cluster.kubectl("delete", "pod", "meanwhile", "-n", mine, "--wait=true")
        fairgate.start()

        say(fairgate, "off")
        assert created(fairgate, "free", gpus=1) == ""
        cluster.kubectl("delete", "mutatingwebhookconfiguration/zz-fairgate", "validatingwebhookconfiguration/fairgate")
        wait_for(cluster, lambda: as_created(fairgate) == seen, what="a pod without Fairgate is as with its shadow")

        keys = [(fairgate.ca.parent / name).read_bytes() for name in ("ca.key", "tls.key")]
        output = cluster.processes.log_path(fairgate.replicas[0].name).read_text() + fairgate.get("/metrics")
        assert serving.leaked(output, keys=keys, kubeconfig=cluster.kubeconfig) == []
        found = reported(fairgate)["rows"]
        refused = [(row["who"], row["code"], row["enforced"]) for row in found if row["outcome"] == "refused"]
        assert sorted(refused) == [("Pod/p2", "TeamLimitExceeded", False), ("Pod/p3", "TeamLimitExceeded", False)]

        say(fairgate, "enforce")
        wait_for(cluster, lambda: serving.is_asked(cluster, fairgate.team_b), what="pods are labelled")
        want = {"p0": "guaranteed", "p1": "guaranteed", "p2": "preemptible", "free": "guaranteed"}
        wait_for(
            cluster,
            lambda: (
                {name: get_pod(cluster, mine, name)["metadata"].get("labels", {}).get(TIER) for name in want} == want
            ),
            what="earlier pods are adopted by age",
        )
        assert "limit 20, used 25" in created(fairgate, "late")
        create_pod(cluster, fairgate.team_b, pod("other", gpus=1, **SIZE))
        assert fairgate.tiers(fairgate.team_b) == ["guaranteed"]
