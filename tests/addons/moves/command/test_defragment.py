"""`fairgate defragment`: the moves that are shown of a world file, in every layout; who may move; what is refused."""

import json
import time
from datetime import UTC, datetime

import pytest
import yaml
from click.testing import CliRunner

from tests import builders as b
from tests.cli.queue.test_queue import gated
from tests.docs import pages
from webhook.cli.main import main

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 8, limit: 20}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 8, limit: 20}}
  - {name: kept, namespaces: [kept], gpus: {guaranteed: 0, limit: 9}}
  - {name: small, namespaces: [small], gpus: {guaranteed: 0, limit: 2}}
defaults: {onLimit: queue, onNoRoom: queue}
reclaim: {protect: [kept], minimumRuntime: 10m}
"""
HOUR = 3600
MOVABLE = {"fairgate.dev/movable": "true"}


def ago(seconds):
    return datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name, gpus=1, *, node, namespace="nlp", tier="preemptible", owner="ReplicaSet", started=HOUR, **more):
    made = b.pod(
        name,
        namespace=namespace,
        uid=f"uid-{name}",
        labels={"fairgate.dev/team": namespace, "fairgate.dev/tier": tier, "app": name},
        node=node,
        controller=(owner, f"of-{name}") if owner else None,
        containers=[b.container(gpus=gpus, cpu="1", memory="1Gi")],
        **more,
    )
    made["metadata"]["creationTimestamp"] = ago(started)
    made["spec"]["terminationGracePeriodSeconds"] = 0
    made["status"] = {"phase": "Running", "startTime": ago(started)}
    return made


def pending(name, gpus, *, namespace="vision", since=2 * HOUR, **more):
    made = pod(name, gpus, node=None, namespace=namespace, tier="guaranteed", **more)
    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    made["status"] = {"phase": "Pending", "conditions": [condition | {"lastTransitionTime": ago(since)}]}
    return made


def nodes(*sizes):
    return [b.node(f"gpu-{number}", gpus=size) for number, size in enumerate(sizes, start=1)]


def run(folder, found, *args, layout="json", code=0):
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "world.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    options = ["--policy", str(folder / "policy.yaml"), "--world", str(folder / "world.json"), "-o", layout]
    result = CliRunner().invoke(main, ["defragment", "--dry-run", *options, *args])
    assert result.exit_code == code, result.output
    return json.loads(result.output) if layout == "json" and not code else result.output


def moves(report):
    return [[(move["pod"], move["from"], move["to"]) for move in room["moves"]] for room in report["rooms"]]


def stays(report):
    return {each["cause"]: each["pods"] for each in report["stays"]}


def scattered():
    """Three nodes with seven free GPUs, made in the test: times count from now."""
    return [
        *nodes(4, 4, 4),
        pod("a", node="gpu-1"),
        pod("b", node="gpu-2", started=HOUR // 2),
        pod("c", 2, node="gpu-3"),
    ]


def test_a_pod_that_its_scheduler_finds_no_room_for_gets_the_cheapest_moves(tmp_path):
    report = run(tmp_path, [*scattered(), pending("train", 4)])
    [room] = report["rooms"]
    assert moves(report) == [[("nlp/b", "gpu-2", "gpu-1")]]
    assert [(place["pod"], place["node"], place["gpus"]) for place in room["places"]] == [
        ("vision/train", "gpu-2", "4")
    ]
    assert (room["lostGpuHours"], room["waitedGpuHours"]) == pytest.approx((0.5, 8.0), abs=0.01)
    assert (room["isWorthIt"], room["isCheapest"]) == (True, True)
    free = {each["free"]: (each["nodesNow"], each["nodesAfter"]) for each in report["free"]}
    assert free == {3: (2, 0), 2: (1, 2)}


def test_a_pod_in_line_gets_them_too(tmp_path):
    found = [*scattered(), gated("first", gpus=4)]
    assert moves(run(tmp_path, found)) == [[("nlp/b", "gpu-2", "gpu-1")]]


def test_a_pod_that_a_limit_keeps_in_line_is_no_target(tmp_path):
    report = run(tmp_path, [*scattered(), gated("first", gpus=4, namespace="small")])
    assert (report["rooms"], report["refused"]) == ([], [])


def test_a_pod_that_waits_for_something_else_than_room_is_no_target(tmp_path):
    waiting = pending("train", 4)
    waiting["status"]["conditions"][0]["message"] = 'persistentvolumeclaim "data" not found'
    assert run(tmp_path, [*scattered(), waiting])["rooms"] == []


def test_the_work_of_a_pod_counts_from_its_last_checkpoint(tmp_path):
    saved = pod("a", node="gpu-1", annotations={"fairgate.dev/checkpointed-at": ago(60)})
    report = run(tmp_path, [*scattered()[:3], saved, *scattered()[4:], pending("train", 4)])
    assert moves(report) == [[("nlp/a", "gpu-1", "gpu-2")]]


def test_moves_that_cost_more_than_the_wait_are_not_worth_it_yet(tmp_path):
    found = [*nodes(4, 4), pod("a", node="gpu-1", started=50 * HOUR), pod("b", 3, node="gpu-2", started=50 * HOUR)]
    report = run(tmp_path, [*found, pending("train", 4, since=60)])
    assert report["rooms"][0]["isWorthIt"] is False
    assert "not worth it yet" in run(tmp_path, [*found, pending("train", 4, since=60)], layout="table")


@pytest.mark.parametrize(
    ("cause", "more"),
    [
        ("Guaranteed", {"tier": "guaranteed"}),
        ("NoController", {"owner": None}),
        ("MinimumRuntime", {"started": 60}),
        ("Protected", {"namespace": "kept"}),
        ("Volumes", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
        ("NoOtherNode", {"nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}),
        ("PlacedElsewhere", {"owner": "DaemonSet"}),
        ("Undecided", {"tier": None}),
        ("AsksToStay", {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
    ],
)
def test_a_pod_stays_for_a_reason_that_is_counted(tmp_path, cause, more):
    fixed = pod("b", node="gpu-2", **more)
    if more.get("tier", "") is None:
        del fixed["metadata"]["labels"]["fairgate.dev/tier"], fixed["metadata"]["labels"]["fairgate.dev/team"]
    found = [*nodes(4, 4, 4), pod("a", node="gpu-1", owner=None), fixed, pod("c", 2, node="gpu-3", owner=None)]
    report = run(tmp_path, [*found, pending("train", 4)])
    assert stays(report).get(cause, 0) == (3 if cause == "NoController" else 1), stays(report)
    assert report["rooms"] == []
    assert report["refused"][0]["cause"] == "NotEnoughMovable"


def test_its_owner_may_let_a_guaranteed_pod_with_volumes_move(tmp_path):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    own = pod("b", node="gpu-2", tier="guaranteed", annotations=MOVABLE, volumes=volumes)
    found = [*nodes(4, 4, 4), pod("a", node="gpu-1", owner=None), own, pod("c", 2, node="gpu-3", owner=None)]
    report = run(tmp_path, [*found, pending("train", 4)])
    assert [move["tier"] for move in report["rooms"][0]["moves"]] == ["guaranteed"]


def test_a_file_says_that_jobs_were_not_looked_at(tmp_path):
    assert run(tmp_path, scattered())["leftOut"] == ["a world file has no Jobs: none was looked at"]


def test_members_of_a_gang_do_not_move(tmp_path):
    gang = pod("b", node="gpu-2", annotations={"fairgate.dev/gang": "true"}, owner="Job")
    found = [*nodes(4, 4, 4), pod("a", node="gpu-1", owner=None), gang, pod("c", 2, node="gpu-3", owner=None)]
    assert stays(run(tmp_path, [*found, pending("train", 4)])) == {"NoController": 2, "Gang": 1}


def test_room_for_a_pod_that_does_not_exist(tmp_path):
    report = run(tmp_path, scattered(), "--gpus", "4")
    assert moves(report) == [[("nlp/b", "gpu-2", "gpu-1")]]
    assert report["rooms"][0]["waitedGpuHours"] is None


def test_the_largest_pod_grows(tmp_path):
    report = run(tmp_path, scattered(), "--largest")
    assert {each["free"]: each["nodesAfter"] for each in report["free"]} == {4: 1, 3: 0, 2: 2}


def test_held_nodes_are_left_alone(tmp_path):
    held = b.node("gpu-3", gpus=4, taints=[{"key": "fairgate.dev/held", "value": "x", "effect": "NoSchedule"}])
    found = [*nodes(4, 4), held, *scattered()[3:], pending("train", 4)]
    assert moves(run(tmp_path, found)) == [[("nlp/b", "gpu-2", "gpu-1")]]


def test_the_table_is_as_the_documentation_shows_it(tmp_path):
    found = [*scattered(), pending("train", 4), pod("d", node="gpu-3", owner=None)]
    section = (pages.ROOT / "docs" / "tasks" / "moves.md").read_text().partition("## What moves would gain")[2]
    want = section.split("```")[1].strip().splitlines()
    assert run(tmp_path, found, layout="table").splitlines()[: len(want)] == want


def test_the_number_of_pods_beyond_the_bound_is_shown(tmp_path):
    many = [pending(f"t{n}", 8) for n in range(52)]
    text = run(tmp_path, [*scattered(), *many], layout="table")
    assert "no moves were sought for 2 more pods or gangs" in text
    assert "for 1 more pod or gang" in run(tmp_path, [*scattered(), *many[1:]], layout="table")


def test_yaml_is_the_same_data(tmp_path):
    found = [*scattered(), pending("train", 4)]
    want = run(tmp_path, found)["rooms"][0]["places"]
    assert yaml.safe_load(run(tmp_path, found, layout="yaml"))["rooms"][0]["places"] == want


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (
            ["--gpus", "4", "--resource", "amd.com/gpu"],
            "no node offers GPUs of resource amd.com/gpu; offered: nvidia.com/gpu",
        ),
        (["--gpus", "4", "--largest"], "--gpus and --largest exclude each other"),
        (["--resource", "nvidia.com/gpu"], "--resource is for --gpus and --largest"),
    ],
)
def test_wrong_options_are_refused(tmp_path, args, want):
    assert want in run(tmp_path, scattered(), *args, code=2)


def test_without_dry_run_nothing_is_read():
    result = CliRunner().invoke(main, ["defragment"])
    assert (result.exit_code, "give --dry-run" in result.output) == (2, True)
