"""Pods that wait in line, by the command and over HTTPS alone."""

import copy
import json

import pytest

from tests import forks
from tests.blackbox.api import Api
from tests.blackbox.objects import FOUR_NODES, GPU, TEAM, TIER, pod, running
from tests.blackbox.server import as_kubectl_prints, serving, write_policy

GATE, WAITING = "fairgate.dev/queue", "fairgate.dev/waiting"
POLICY = {
    "teams": [
        {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": 20, "limit": 20}, "queueDepth": 3},
        {"name": "b", "namespaces": ["team-b"], "gpus": {"guaranteed": 20}, "onLimit": "reject", "onNoRoom": "wait"},
    ],
    "defaults": {"onLimit": "queue", "onNoRoom": "queue"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("queue"), policy=POLICY, world=FOUR_NODES) as started:
        yield started


@pytest.fixture
def full(api):
    """The API server while team a holds all of its limit."""
    for number in range(5):
        assert api.create(pod(f"holder-{number}", "team-a", gpus=4)).is_allowed
    return api


def gates(created):
    return [gate["name"] for gate in created.manifest["spec"].get("schedulingGates", ())]


def waiting(created):
    return created.manifest["metadata"]["annotations"][WAITING]


def test_the_21st_gpu_waits_with_gate_team_and_cause_and_is_not_charged(server, full):
    created = full.create(pod("next", "team-a", gpus=4))
    assert (created.is_allowed, gates(created)) == (True, [GATE])
    assert created.labels == {TEAM: "a"}
    assert waiting(created) == "waits: team a holds 20 of 20; next when 4 GPUs come back; 1st in the queue"
    assert set(created.warnings) == {waiting(created)}, "kubectl shows equal warnings once"
    assert "affinity" not in created.manifest["spec"]
    assert server.charged("a") == 20
    assert ({"team": "a"}, 1) in server.samples("fairgate_queue_depth")
    assert waiting(full.create(pod("second", "team-a", gpus=1))).endswith(
        "next when 1 GPU comes back; 2nd in the queue"
    )
    full.delete(created.manifest)
    assert waiting(full.create(pod("third", "team-a", gpus=1))).endswith("2nd in the queue")


def test_pods_that_come_at_once_start_or_wait_and_none_is_refused(server):
    """All pass the first webhook before any is charged; what finds no room then is asked to try again, and waits."""
    api, many = Api(server), [pod(f"at-once-{number}", "team-a", gpus=8) for number in range(4)]
    made = [api.mutate(each) for each in many]
    done = [api.validate(each.manifest) for each in made]
    assert [each.is_allowed for each in done] == [True, True, False, False]
    assert [each.status["code"] for each in done[2:]] == [429, 429]
    again = [api.create(each) for each in many[2:]]
    assert [(each.is_allowed, gates(each)) for each in again] == [(True, [GATE])] * 2
    assert server.charged("a") == 16
    api.delete_all()


def test_beyond_the_depth_of_the_queue_a_pod_is_refused_with_the_number(full):
    for number in range(3):
        assert full.create(pod(f"dry-{number}", "team-a"), dry_run=True).is_allowed
        assert full.create(pod(f"next-{number}", "team-a")).is_allowed
    refused = full.create(pod("more", "team-a"))
    assert (refused.is_allowed, refused.status["code"]) == (False, 403)
    assert "3 pods are queued, which is all that its queue holds (3)" in refused.status["message"]


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"gpus": 21}, "requested 21, limit 20, used 20", id="over the limit even alone"),
        pytest.param({"gpus": 11}, "no node could hold the pod", id="no node so large"),
    ],
)
def test_what_can_never_run_is_refused_at_once(full, asked, want):
    refused = full.create(pod("large", "team-a", **asked))
    assert (refused.is_allowed, want in refused.status["message"]) == (False, True)


def test_a_pod_in_an_unknown_pool_is_refused_at_once(full):
    manifest = pod("lost", "team-a")
    manifest["metadata"]["annotations"] = {"fairgate.dev/pool": "nowhere"}
    refused = full.create(manifest)
    assert (refused.is_allowed, "(UnknownPool)" in refused.status["message"]) == (False, True)


def without(manifest, *path):
    changed = copy.deepcopy(manifest)
    within = changed
    for key in path[:-1]:
        within = within[key]
    del within[path[-1]]
    return changed


def test_an_update_of_a_pod_in_line_smuggles_nothing_in(full):
    stored = full.create(pod("next", "team-a", gpus=4)).manifest
    larger = copy.deepcopy(stored)
    larger["spec"]["containers"][0]["resources"]["limits"][GPU] = "8"
    larger["spec"]["containers"][0]["resources"]["requests"][GPU] = "8"
    moved = stored | {"metadata": stored["metadata"] | {"labels": {TEAM: "b"}}}
    tiered = stored | {"metadata": stored["metadata"] | {"labels": {TEAM: "a", TIER: "guaranteed"}}}
    for changed in (
        without(stored, "spec", "schedulingGates"),
        without(stored, "metadata", "annotations", "fairgate.dev/decision"),
        larger,
        moved,
        tiered,
    ):
        refused = full.update(stored, changed)
        assert (refused.is_allowed, "(ProtectedKeyChanged)" in refused.status["message"]) == (False, True)
    narrowed = stored | {"spec": stored["spec"] | {"nodeSelector": {"zone": "a"}}}
    assert full.update(stored, narrowed).is_allowed


def test_a_forged_gate_or_cause_is_not_taken(server):
    api = Api(server)
    manifest = pod("forged", "team-b", schedulingGates=[{"name": GATE}])
    manifest["metadata"]["annotations"] = {WAITING: "waits: for ever"}
    created = api.create(manifest)
    assert (gates(created), WAITING in created.manifest["metadata"]["annotations"]) == ([], False)
    assert server.charged("b") == 1
    api.delete_all()


def test_the_line_of_a_world_that_was_written_by_hand_is_shown(tmp_path):
    """It has the gate and the team of a pod, and no decision."""
    held = [running(pod(f"h-{number}", "team-a", gpus=4), f"node-{number % 4}") for number in range(5)]
    lines = []
    for name, created in (("late", "2026-11-01T11:00:00Z"), ("early", "2026-11-01T10:00:00Z")):
        manifest = pod(name, "team-a", gpus=4, schedulingGates=[{"name": GATE}])
        about = {"uid": f"uid-{name}", "creationTimestamp": created, "labels": {TEAM: "a"}}
        lines.append(manifest | {"metadata": manifest["metadata"] | about})
    write_policy(tmp_path / "policy", POLICY)
    (tmp_path / "world.yaml").write_text(as_kubectl_prints([*FOUR_NODES, *held, *lines]))
    command = ("queue", "--policy", tmp_path / "policy", "--world", tmp_path / "world.yaml", "-o", "json")
    done = forks.run("webhook", *command)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [(each["name"], each["place"], each["user"]) for each in shown["pods"]] == [
        ("early", 1, None),
        ("late", 2, None),
    ]
    assert shown["pods"][0]["cause"] == "team a holds 20 of 20; next when 4 GPUs come back"
    assert [each["name"] for each in shown["pods"][0]["holders"]] == [f"team-a/Pod/h-{n}" for n in range(3)]
