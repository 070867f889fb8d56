"""A namespace admin tries to start out of turn, to hold GPUs without a charge, and to hold up the line for others."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
)
from tests.scenarios.evictor import evictor, fill
from tests.scenarios.standing_fairgate import DECISION, TEAM, FairgateServer, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
GATE, WAITING, TIER = "fairgate.dev/queue", "fairgate.dev/waiting", "fairgate.dev/tier"
FOREIGN = {"schedulingGates": [{"name": "example.com/mine"}]}
OURS = {"schedulingGates": [{"name": GATE}]}
DEPTH = 6
POLICY = f"defaults: {{onLimit: queue, onNoRoom: queue}}\nqueue: {{depth: {DEPTH}}}\n"


@pytest.fixture
def fairgate(cluster: ControlPlane) -> Iterator[FairgateServer]:
    make_nodes(cluster, 4, labels={"zone": "a"})
    with serve_fairgate(cluster, policy=POLICY) as running:
        yield running


@pytest.fixture
def attacker(fairgate: FairgateServer) -> Attacker:
    """An admin of team a, which holds all of its limit."""
    for number in range(4):
        create_pod(fairgate.cluster, fairgate.team_a, sized(f"holder-{number}", 5))
        wait_bound(fairgate.cluster, fairgate.team_a, f"holder-{number}")
    return make_attacker(fairgate.cluster, fairgate.team_a)


def sized(name: str, gpus: int = 1, **more: object) -> dict:
    return pod(name, gpus=gpus, **SIZE, **more)


def gates(attacker: Attacker, name: str) -> list[str]:
    found = get_pod(attacker.cluster, attacker.namespace, name)
    return [gate["name"] for gate in found["spec"].get("schedulingGates", ())]


def queued(attacker: Attacker, name: str = "p", **more: object) -> None:
    made = attacker.create(sized(name, **more))
    assert made.returncode == 0, made.stderr
    assert GATE in gates(attacker, name)


def patch(attacker: Attacker, change: object, *options: str, name: str = "p") -> str:
    """Patch a pod as the attacker; returns the message of the refusal, "" if it was taken."""
    done = attacker.kubectl("patch", "pod", name, "-p", json.dumps(change), *(options or ("--type=merge",)))
    return "" if done.returncode == 0 else done.stderr


def requires(text: str | None) -> dict:
    return {"metadata": {"annotations": {"fairgate.dev/requires": text}}}


def make_room(fairgate: FairgateServer, name: str = "holder-0") -> None:
    fairgate.cluster.kubectl("delete", "pod", name, "-n", fairgate.team_a, "--wait=true")


def settled(fairgate: FairgateServer, gpus: int) -> None:
    wait_for(fairgate.cluster, lambda: fairgate.charged("a") == gpus, what=f"{gpus} GPUs charged")


# -- out of turn


def test_the_gate_does_not_go_by_any_write_of_its_owner(fairgate, attacker):
    queued(attacker)
    no_gates = {"spec": {"schedulingGates": None}}
    remove = [{"op": "remove", "path": "/spec/schedulingGates"}]
    assert "(ProtectedKeyChanged)" in patch(attacker, no_gates)
    assert "(ProtectedKeyChanged)" in patch(attacker, remove, "--type=json")
    renamed = {"spec": {"schedulingGates": [{"name": "example.com/mine"}]}}
    assert patch(attacker, renamed), "no gate may be added either"
    found = attacker.api.get(f"/api/v1/namespaces/{attacker.namespace}/pods/p")
    found["spec"].pop("schedulingGates")
    replaced = attacker.kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert "(ProtectedKeyChanged)" in replaced.stderr
    for subresource in ("status", "resize", "ephemeralcontainers"):
        patch(attacker, no_gates, "--type=merge", f"--subresource={subresource}")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-0"}}
    with pytest.raises(ApiError):
        attacker.api.create(f"/api/v1/namespaces/{attacker.namespace}/pods/p/binding", binding)
    with pytest.raises(ApiError, match=r"schedulingGates|scheduling gates"):
        fairgate.cluster.api.create(f"/api/v1/namespaces/{attacker.namespace}/pods/p/binding", binding)
    assert gates(attacker, "p") == [GATE]
    assert fairgate.charged("a") == 20


def test_stating_a_second_starts_no_pod_ahead_of_others(fairgate, attacker):
    queued(attacker, "honest", gpus=5)
    time.sleep(1.1)  # ages are in seconds
    queued(attacker, "liar", gpus=5, annotations={"fairgate.dev/run-time": "1s"})
    patch(attacker, {"metadata": {"annotations": {"fairgate.dev/run-time": "2s"}}}, name="liar")
    make_room(fairgate)
    wait_bound(fairgate.cluster, attacker.namespace, "honest")
    settled(fairgate, 20)
    assert gates(attacker, "liar") == [GATE]


def test_team_tier_and_decision_of_a_waiting_pod_are_guarded(fairgate, attacker):
    queued(attacker)
    for metadata in (
        {"labels": {TEAM: "b"}},
        {"labels": {TIER: "guaranteed"}},
        {"annotations": {DECISION: "{}"}},
        {"annotations": {DECISION: None}},
    ):
        assert "(ProtectedKeyChanged)" in patch(attacker, {"metadata": metadata})
    make_room(fairgate)
    wait_bound(fairgate.cluster, attacker.namespace, "p")
    assert get_pod(fairgate.cluster, attacker.namespace, "p")["metadata"]["labels"][TEAM] == "a"


def test_a_forged_gate_decision_or_team_starts_nothing_that_is_not_charged(fairgate, attacker):
    queued(attacker)
    decision = get_pod(fairgate.cluster, attacker.namespace, "p")["metadata"]["annotations"][DECISION]
    small = json.dumps(json.loads(decision) | {"gpus": "0", "demand": {}})
    for labels, carried in (
        ({TEAM: "b"}, {DECISION: decision}),
        ({TEAM: "a"}, {DECISION: small}),
        ({TEAM: "a", TIER: "guaranteed"}, {DECISION: json.dumps(json.loads(decision) | {"mode": "auto"})}),
        ({TEAM: "a"}, {DECISION: json.dumps(json.loads(decision) | {"user": "root"})}),
    ):
        made = sized("forged", labels=labels, annotations=carried, **OURS)
        attacker.create(made)
        for found in list_pods(fairgate.cluster, attacker.namespace):
            if found["metadata"]["name"] == "forged":
                kept = json.loads(found["metadata"]["annotations"][DECISION])
                assert (found["metadata"]["labels"][TEAM], kept["gpus"]) == ("a", "1")
                assert kept["user"] != "root"
                assert [gate["name"] for gate in found["spec"]["schedulingGates"]] == [GATE]
        attacker.kubectl("delete", "pod", "forged", "--ignore-not-found", "--wait=true")
    assert fairgate.charged("a") == 20


def test_the_gate_on_a_pod_that_only_counts_is_refused(fairgate, attacker):
    make_room(fairgate)
    settled(fairgate, 15)
    refused = attacker.refused(sized("p", schedulerName="mine", **OURS), code="InvalidRequest")
    assert "scheduling gate fairgate.dev/queue" in refused
    assert fairgate.charged("a") == 15


def test_an_own_gate_on_a_pod_that_may_start_is_removed(fairgate, attacker):
    make_room(fairgate)
    settled(fairgate, 15)
    attacker.create_pod(sized("p", **OURS))
    wait_bound(fairgate.cluster, attacker.namespace, "p")
    settled(fairgate, 16)


def test_a_dry_run_stands_in_no_line(fairgate, attacker):
    for number in range(DEPTH + 2):
        assert attacker.create(sized(f"dry-{number}"), "--dry-run=server").returncode == 0
    queued(attacker)
    assert "1st in the queue" in get_pod(fairgate.cluster, attacker.namespace, "p")["metadata"]["annotations"][WAITING]


def test_a_high_priority_goes_ahead_of_no_other_team(fairgate, attacker):
    cluster = fairgate.cluster
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "top"}}
    cluster.kubectl.apply([important | {"value": 1_000_000}])
    for number in range(4):
        create_pod(cluster, fairgate.team_b, sized(f"other-{number}", 5))
        wait_bound(cluster, fairgate.team_b, f"other-{number}")
    create_pod(cluster, fairgate.team_b, sized("honest"))
    queued(attacker, priorityClassName="top")
    cluster.kubectl("delete", "pod", "other-0", "-n", fairgate.team_b, "--wait=true")
    wait_bound(cluster, fairgate.team_b, "honest")
    assert gates(attacker, "p") == [GATE]
    assert fairgate.charged("a") == 20


def heads(full: str) -> list[dict]:
    """Pods inside their team's share, of the size that a department's limit lacks, for which there is no place."""
    nowhere = {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "kubernetes.io/hostname"}
    gang = {"annotations": {"fairgate.dev/gang": "true", "kueue.x-k8s.io/pod-group-total-count": "2"}}
    gang["labels"] = {"kueue.x-k8s.io/pod-group-name": "g"}
    at_full = {"nodeSelector": {"kubernetes.io/hostname": full}}
    return [
        sized("names-a-full-node", 4, **at_full),
        sized("names-no-node", 4),
        sized("label-of-no-node", 4),
        sized(
            "beside-no-pod", 4, affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nowhere]}}
        ),
        sized("of-a-gang", 3, **gang),
        sized("rest-of-the-gang", 1, **gang, **at_full),
    ]


def test_a_head_without_a_place_keeps_no_limit_of_a_department_from_others(cluster):
    """Each waits ahead of all; no pod is evicted for one of them, and the room that is made for another is its own."""
    full = make_nodes(cluster, 3, labels={"zone": "a"})[0]
    more = "departments: [{name: lab, gpus: {guaranteed: 10, limit: 10}}]\nqueue: {strictAfter: 0s}\n"
    with serve_fairgate(cluster, policy=f"defaults: {{onLimit: queue, onNoRoom: queue}}\n{more}") as fairgate:
        teams = {name: make_namespace(cluster) for name in ("mallory", "owed", "hog")}
        shares = [
            f"  - {{name: {space}, namespaces: [{space}], department: lab, gpus: {{guaranteed: {share}, limit: 10}}}}\n"
            for space, share in zip(teams.values(), (4, 3, 3), strict=True)
        ]
        header = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams:\n"
        (fairgate.policy / "lab.yaml").write_text(header + "".join(shares))
        known = f'team="{teams["hog"]}"'
        wait_for(cluster, lambda: known in fairgate.get("/metrics"), what="the teams are known")
        create_pod(cluster, fairgate.team_b, sized("full", 10, nodeSelector={"kubernetes.io/hostname": full}))
        wait_bound(cluster, fairgate.team_b, "full")
        fill(cluster, teams["hog"], 10)
        attacker = make_attacker(cluster, teams["mallory"])
        made = heads(full)
        for head in made:
            attacker.create_pod(head)
        for name, selector in (
            ("names-no-node", {"kubernetes.io/hostname": "node-99"}),
            ("label-of-no-node", {"zone": "nowhere"}),
        ):
            assert patch(attacker, {"spec": {"nodeSelector": selector}}, name=name) == "", "it waits already"
        time.sleep(1.1)  # ages are in seconds
        with evictor(fairgate) as running:
            create_pod(cluster, teams["owed"], sized("owed"))
            wait_bound(cluster, teams["owed"], "owed")
            assert [gates(attacker, head["metadata"]["name"]) for head in made] == [[GATE]] * len(made)
            assert {each["name"] for each in running.said("limit plan")} == {"owed"}
            assert len(running.said("evicted")) == 1


# -- another demand


def test_the_demand_of_a_waiting_pod_does_not_change(fairgate, attacker):
    queued(attacker)
    more = [{"op": "replace", "path": "/spec/containers/0/resources/limits/nvidia.com~1gpu", "value": "9"}]
    assert patch(attacker, more, "--type=json")
    assert patch(attacker, more, "--type=json", "--subresource=resize")
    room = {"spec": {"tolerations": [{"key": "fairgate.dev/held", "operator": "Exists"}]}}
    assert "(HeldRoom)" in patch(attacker, room)
    make_room(fairgate)
    wait_bound(fairgate.cluster, attacker.namespace, "p")
    settled(fairgate, 16)


def test_a_pod_is_judged_as_it_is_when_its_turn_comes(fairgate, attacker):
    queued(attacker)
    assert patch(attacker, {"spec": {"nodeSelector": {"zone": "nowhere"}}}) == ""
    make_room(fairgate)
    settled(fairgate, 15)

    def says_so():
        return "node" in get_pod(fairgate.cluster, attacker.namespace, "p")["metadata"]["annotations"][WAITING]

    wait_for(fairgate.cluster, says_so, what="the cause is another one")
    assert gates(attacker, "p") == [GATE]
    assert fairgate.charged("a") == 15


def test_a_pod_that_became_unreadable_keeps_its_place_in_the_depth(fairgate, attacker):
    for number in range(DEPTH):
        queued(attacker, f"p-{number}")
        assert patch(attacker, requires("x" * 9000), name=f"p-{number}") == ""
    wait_for(
        fairgate.cluster,
        lambda: "(QueueFull)" in attacker.create(sized("more"), "--dry-run=server").stderr,
        what="the queue is full",
    )
    make_room(fairgate)
    settled(fairgate, 15)
    assert all(gates(attacker, f"p-{number}") == [GATE] for number in range(DEPTH))
    assert patch(attacker, requires(None), name="p-3") == ""
    wait_bound(fairgate.cluster, attacker.namespace, "p-3")


# -- the line


def test_a_full_line_refuses_and_delays_no_other_team(fairgate, attacker):
    for number in range(DEPTH):
        queued(attacker, f"p-{number}")
    refused = attacker.refused(sized("more"), code="QueueFull")
    assert f"all that its queue holds ({DEPTH})" in refused
    create_pod(fairgate.cluster, fairgate.team_b, sized("other"))
    wait_bound(fairgate.cluster, fairgate.team_b, "other")


def test_a_foreign_gate_holds_no_gpu_and_no_place_ahead_of_others(fairgate, attacker):
    make_room(fairgate)
    settled(fairgate, 15)
    for number in range(3):
        attacker.create_pod(sized(f"held-{number}", 5, **FOREIGN))
    assert fairgate.charged("a") == 15
    attacker.create_pod(sized("honest", 5))
    wait_bound(fairgate.cluster, attacker.namespace, "honest")
    queued(attacker, "older", gpus=5)
    remove = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    found = gates(attacker, "held-0")
    assert sorted(found) == ["example.com/mine", GATE]
    remove[0]["path"] = f"/spec/schedulingGates/{found.index('example.com/mine')}"
    assert patch(attacker, remove, "--type=json", name="held-0") == ""
    make_room(fairgate, "holder-1")
    wait_bound(fairgate.cluster, attacker.namespace, "older")
    assert gates(attacker, "held-0") == [GATE], "it joined the line when its gate went, behind the other"
    assert fairgate.charged("a") == 20


def test_creating_and_deleting_again_and_again_leaves_no_charge(fairgate, attacker):
    make_room(fairgate)
    settled(fairgate, 15)
    for number in range(12):
        attacker.create_pod(sized("p", 5, terminationGracePeriodSeconds=1, **FOREIGN))  # so long its charge outlives it
        remove = [{"op": "remove", "path": f"/spec/schedulingGates/{gates(attacker, 'p').index('example.com/mine')}"}]
        patch(attacker, remove, "--type=json")
        is_awaited = "true" if number % 2 else "false"
        attacker.kubectl("delete", "pod", "p", "--grace-period=0", "--force", f"--wait={is_awaited}")
        wait_for(
            fairgate.cluster,
            lambda: "p" not in [each["metadata"]["name"] for each in list_pods(fairgate.cluster, attacker.namespace)],
            what="it is gone",
        )
        assert fairgate.charged("a") <= 20
    settled(fairgate, 15)
    wait_for(fairgate.cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="an empty ledger")


@pytest.mark.long
def test_who_creates_pods_until_one_finds_room_gets_no_more_than_who_waits(cluster):
    """A pod that has to wait is deleted and created again, so that it may come just when a GPU is free.

    GPUs are compared, not pods: those that are let in at once hold theirs for a shorter time than those that are
    charged in line.
    """
    make_nodes(cluster, 1, gpus=12)
    with serve_fairgate(cluster, policy=POLICY.replace(f"depth: {DEPTH}", "depth: 500")) as fairgate:
        file = fairgate.policy / "teams.yaml"
        file.write_text(file.read_text().replace('"guaranteed": 20', '"guaranteed": 0'))
        wait_for(
            cluster, lambda: fairgate.metric("fairgate_team_gpus_guaranteed", team="a") == 0, what="the edit is live"
        )
        ends = {"labels": {"fairgate.test/completes": "true"}, "annotations": {"fairgate.test/runs-for": "3s"}}
        for number in range(120):
            create_pod(cluster, fairgate.team_a, sized(f"honest-{number}", restartPolicy="Never", **ends))
        attacker = make_attacker(cluster, fairgate.team_b)
        held: Counter[str] = Counter()
        began = time.monotonic()
        while time.monotonic() - began < 15:
            held.update({team: round(fairgate.charged(team)) for team in ("a", "b")})
            try:
                made = attacker.create_pod(sized(f"m-{time.monotonic_ns()}", restartPolicy="Never", **ends))
            except ApiError as error:  # the next in line was faster: clients try again by themselves
                if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
                continue
            if made["spec"].get("schedulingGates"):
                path = f"/api/v1/namespaces/{attacker.namespace}/pods/{made['metadata']['name']}"
                attacker.api.delete(path, {"gracePeriodSeconds": 0})
        assert 0 < held["b"] <= held["a"], held


def test_texts_of_the_owner_reach_no_terminal_and_no_event(fairgate, attacker):
    queued(attacker)
    evil = "waits: \x1b[2Jall is well\u202e\n" + "x" * 3000
    assert patch(attacker, {"metadata": {"annotations": {WAITING: evil}}}) == ""
    make_room(fairgate)
    wait_bound(fairgate.cluster, attacker.namespace, "p")
    events = fairgate.cluster.kubectl.json("get", "events", "-n", attacker.namespace)["items"]
    texts = [each["message"] for each in events]
    assert not any("\x1b" in text or "\u202e" in text for text in texts)


def test_a_namespace_that_moves_takes_its_line_along(fairgate, attacker):
    queued(attacker)
    file = fairgate.policy / "teams.yaml"
    content = file.read_text()
    moved = content.replace('["team-a-*"]', '["nowhere-*"]').replace('["team-b-*"]', '["team-b-*", "team-a-*"]')
    assert moved != content
    file.write_text(moved)
    wait_for(fairgate.cluster, lambda: fairgate.charged("b") == 20, what="its running pods count for team b")
    assert gates(attacker, "p") == [GATE], "that team is full with them"
    make_room(fairgate)
    wait_bound(fairgate.cluster, attacker.namespace, "p")
    found = get_pod(fairgate.cluster, attacker.namespace, "p")["metadata"]
    assert found["labels"][TEAM] == "b"
    wait_for(fairgate.cluster, lambda: fairgate.charged("b") == 16, what="team b pays")
