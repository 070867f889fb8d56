"""A world file says for which pods nodes keep room, and every command that reads it goes by that, as on a cluster."""

import json

import pytest
import yaml
from click.testing import CliRunner

from tests import builders as b
from webhook.cli.main import main
from webhook.core.model.amounts import CPU, MEMORY, PODS, NodeName, ResourceName, TeamName, Uid
from webhook.core.model.node import KeptPlace
from webhook.core.reclaim.holds import NodeHold
from webhook.kube.nodes.holds import hold_text
from webhook.kube.objects import keys

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 16, limit: 32}, onNoRoom: queue}
"""
NEED = ((CPU, 6000), (MEMORY, 48 << 30), (ResourceName("nvidia.com/gpu"), 8), (PODS, 1))
MOVED = KeptPlace("Job vision/train", "vision/train-old", TeamName("vision"), NEED, replaces=Uid("gone"))
IN_LINE = KeptPlace("u-waits", "vision/waits", TeamName("vision"), NEED)
TRACE = "name,team,gpus,created,seconds\ntrain,vision,8,0,3600\n"


@pytest.fixture(params=[False, True], ids=["names", "pseudonyms"])
def run(request, tmp_path):
    """Run a command on a file of a cluster with one node, which keeps room for two pods."""
    node = b.node("n0", gpus=8, taints=[{"key": keys.HELD, "value": "h1", "effect": "NoSchedule"}])
    hold = NodeHold("h1", NodeName("n0"), until=2_000_000_000, beneficiaries=(), places=(MOVED, IN_LINE))
    node["metadata"]["annotations"] = {keys.HOLD: hold_text(hold)}
    waits = b.pod("waits", gpus=8, uid="u-waits", labels={keys.TEAM: "vision"})
    waits["spec"]["schedulingGates"] = [{"name": keys.QUEUE_GATE}]
    world, policy = tmp_path / "world.yaml", ("--policy", str(tmp_path / "policy.yaml"))
    (tmp_path / "policy.yaml").write_text(POLICY)
    world.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [node, waits]}))

    def invoke(command, *words):
        done = CliRunner().invoke(main, [command, *policy, "--world", str(world), *map(str, words)])
        assert not done.stderr.startswith("fairgate"), done.stderr
        return done.stdout

    if request.param:
        world.write_text(invoke("world", "--pseudonyms"))
    return invoke


def outcomes(run, path, *names):
    """Review a Job of each of these names; return the outcome, with the first node of its pod."""
    found = []
    for name in names:
        template = {"spec": {**b.pod(gpus=8)["spec"], "restartPolicy": "Never"}}
        metadata = {"name": name, "namespace": "vision"}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
        path.write_text(yaml.safe_dump(job))
        [workload] = json.loads(run("review", path, "-o", "json"))["workloads"]
        assert workload["warnings"] == [], "a node that is held for a moment is no reason why a pod never fits"
        found.append((workload["outcome"], *workload["pods"][0]["nodes"]))
    return found


@pytest.mark.parametrize(
    ("run", "kept_for"), [(False, "train"), (True, "job-1")], indirect=["run"], ids=["names", "pseudonyms"]
)
def test_a_job_whose_pod_moves_has_its_place_in_review_and_no_other_has(run, tmp_path, kept_for):
    (outcome, node), other = outcomes(run, tmp_path / "job.yaml", kept_for, "other")
    assert (outcome, node in {"n0", "node-1"}) == ("admitted", True)
    assert other == ("queued",)


def test_status_names_who_moves_where(run):
    [node] = json.loads(run("status", "-o", "json"))["nodes"]
    assert node["arriving"] in (["vision/train-old"], ["vision/pod-1"])


@pytest.mark.parametrize(
    ("run", "name", "node"),
    [(False, "waits", "n0"), (True, "pod-2", "node-1")],
    indirect=["run"],
    ids=["names", "pseudonyms"],
)
def test_the_room_that_is_kept_for_a_pod_in_line_is_shown(run, name, node):
    text = run("explain", f"pod/{name}", "-n", "vision")
    assert f"8 GPUs on {node} are reserved until 2033-05-18T03:33:20Z" in text
    assert "1st of all" in text


def test_in_a_simulation_the_room_does_not_stay_kept(run, tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    [policy] = json.loads(run("simulate", "--trace", tmp_path / "trace.csv", "-o", "json"))["policies"]
    assert policy["total"]["neverStarted"]["mean"] == 0
