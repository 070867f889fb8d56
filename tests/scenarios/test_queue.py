"""`onLimit: queue`, `onNoRoom: queue`: pods that may not start now wait with a scheduling gate."""

import json
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from tests.control_plane.api import Api
from tests.control_plane.objects import job, pod, pod_spec
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
)
from tests.scenarios.evictor import evictor
from tests.scenarios.standing_fairgate import DECISION, TEAM, TIER, serve_fairgate
from webhook.cli.main import main

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
GATE = "fairgate.dev/queue"
WAITING = "fairgate.dev/waiting"
LEDGER = "/apis/fairgate.dev/v1alpha1/teamledgers/a"
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\n"


def pod_manifest(name, **spec):
    return json.dumps(pod(name, **spec, **SIZE))


def gates(found):
    return [gate["name"] for gate in found["spec"].get("schedulingGates", ())]


def waits(cluster, namespace, name):
    return GATE in gates(get_pod(cluster, namespace, name))


def shown(fairgate, command, *words):
    """What a command prints that looks at the cluster and leaves."""
    options = ["--policy", str(fairgate.policy), "--kubeconfig", str(fairgate.cluster.kubeconfig)]
    return CliRunner().invoke(main, [command, *options, *words])


def line_of(fairgate, *, pods):
    """The line as `fairgate queue` shows it, once it has so many pods."""
    result = shown(fairgate, "queue", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return found if len(found["pods"]) == pods else None


@pytest.mark.promise
def test_the_21st_gpu_waits_in_line_and_starts_within_a_second_of_room(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        for number in range(5):
            create_pod(cluster, fairgate.team_a, pod(f"holder-{number}", gpus=4, **SIZE))
            wait_bound(cluster, fairgate.team_a, f"holder-{number}")
        created = cluster.kubectl.run("create", "-f", "-", "-n", fairgate.team_a, stdin=pod_manifest("next", gpus=1))
        assert created.returncode == 0
        assert "waits: team a holds 20 of 20; next when 1 GPU comes back; 1st in the queue" in created.stderr
        found = get_pod(cluster, fairgate.team_a, "next")
        assert gates(found) == [GATE]
        assert found["metadata"]["labels"][TEAM] == "a"
        assert "fairgate.dev/tier" not in found["metadata"]["labels"]
        assert found["metadata"]["annotations"][WAITING].endswith("1st in the queue")
        assert "affinity" not in found["spec"]
        assert "SchedulingGated" in cluster.kubectl("get", "pods", "-n", fairgate.team_a)
        assert fairgate.charged("a") == 20
        event = wait_for(
            cluster,
            lambda: [
                each["message"]
                for each in cluster.kubectl.json("get", "events", "-n", fairgate.team_a)["items"]
                if each["reason"] == "Queued"
            ],
            what="the Event of the pod",
        )
        assert "team a holds 20 of 20" in event[0]

        cluster.kubectl("delete", "pod", "holder-0", "-n", fairgate.team_a, "--wait=true")
        wait_for(cluster, lambda: not waits(cluster, fairgate.team_a, "next"), what="the pod is released")
        wait_bound(cluster, fairgate.team_a, "next")
        released = get_pod(cluster, fairgate.team_a, "next")
        assert released["metadata"]["labels"]["fairgate.dev/tier"] == "guaranteed"
        assert WAITING not in released["metadata"]["annotations"]
        assert '"mode":"auto"' in released["metadata"]["annotations"][DECISION]
        wait_for(cluster, lambda: fairgate.charged("a") == 17, what="17 GPUs charged")


def test_the_line_of_a_live_cluster_is_shown_to_a_user(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        for number in range(5):
            create_pod(cluster, fairgate.team_a, pod(f"holder-{number}", gpus=4, **SIZE))
            wait_bound(cluster, fairgate.team_a, f"holder-{number}")
        for name, gpus in (("first", 4), ("second", 1)):
            create_pod(cluster, fairgate.team_a, pod(name, gpus=gpus, **SIZE))
            time.sleep(1.1)  # ages are in seconds, and equal ones go by name
        found = wait_for(cluster, lambda: line_of(fairgate, pods=2), what="both queued pods")
        first, second = found["pods"]
        assert [(each["name"], each["place"], each["placeInTeam"]) for each in (first, second)] == [
            ("first", 1, 1),
            ("second", 2, 2),
        ]
        assert (first["team"], first["gpus"], first["code"]) == ("a", "4", "WaitsForLimit")
        assert first["cause"] == "team a holds 20 of 20; next when 4 GPUs come back"
        assert [holder["gpus"] for holder in first["holders"]] == ["4", "4", "4"]
        assert first["holders"][0]["name"] == f"{fairgate.team_a}/Pod/holder-0"
        table = shown(fairgate, "queue", "--team", "a").stdout
        assert f"{fairgate.team_a}/second" in table
        unknown = shown(fairgate, "queue", "--team", "unknown")
        assert (unknown.exit_code, "the policy has no team unknown" in unknown.stderr) == (2, True)

        explained = shown(fairgate, "explain", "pod/second", "-n", fairgate.team_a)
        assert explained.exit_code == 1
        assert "2nd in the queue of team a, 2nd of all" in explained.stdout
        assert "waits for: team a holds 20 of 20; next when 1 GPU comes back" in explained.stdout
        [said] = json.loads(shown(fairgate, "explain", "pod/first", "-n", fairgate.team_a, "-o", "json").stdout)
        assert (said["state"], said["outcome"], said["line"]["cause"]) == ("queued", "queued", first["cause"])
        assert said["reasons"][0]["message"] == f"waits: {first['cause']}"
        holds = shown(fairgate, "explain", "pod/holder-0", "-n", fairgate.team_a)
        assert holds.exit_code == 0, "it runs, whatever became of it if it came now"
        assert "outcome  queued" in holds.stdout
        assert "5 (2 pods)" in shown(fairgate, "status").stdout
        ledger = wait_for(
            cluster,
            lambda: found if (found := cluster.api.get(LEDGER)["status"])["queued"] == 2 else None,
            what="the TeamLedger counts the line",
        )
        assert ledger["queuedGpus"] == "5"

        cluster.kubectl("delete", "pod", "first", "-n", fairgate.team_a)
        found = wait_for(cluster, lambda: line_of(fairgate, pods=1), what="one queued pod")
        assert (found["pods"][0]["name"], found["pods"][0]["place"]) == ("second", 1)
        assert fairgate.metric("fairgate_queue_depth", team="a") == 1
        waits_before = fairgate.metric("fairgate_queue_wait_seconds_count", team="a")
        cluster.kubectl("delete", "pod", "holder-0", "-n", fairgate.team_a, "--wait=true")
        wait_bound(cluster, fairgate.team_a, "second")
        assert line_of(fairgate, pods=0) is not None
        wait_for(cluster, lambda: fairgate.metric("fairgate_queue_depth", team="a") == 0, what="an empty line")
        assert fairgate.metric("fairgate_queue_releases_total", team="a", way="inTurn") == 1
        assert fairgate.metric("fairgate_queue_wait_seconds_count", team="a") == waits_before + 1


@pytest.mark.promise
def test_jobs_over_the_limit_finish_in_line_without_a_refusal(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=20, policy=QUEUES) as fairgate:
        cluster.kubectl.apply(
            [
                job(
                    f"work-{number}",
                    pods=2,
                    gpus=4,
                    labels={"fairgate.test/completes": "true"},
                    annotations={"fairgate.test/runs-for": "2s"},
                    **SIZE,
                )
                for number in range(6)
            ],
            "-n",
            fairgate.team_a,
        )

        def done():
            jobs = cluster.kubectl.json("get", "jobs", "-n", fairgate.team_a)["items"]
            return len(jobs) == 6 and all(each["status"].get("succeeded") == 2 for each in jobs)

        wait_for(cluster, done, what="all jobs are complete", timeout=120)
        assert fairgate.refused("TeamLimitExceeded") == 0


def test_a_deployment_over_the_limit_waits_in_line_without_a_refusal(cluster):
    """Its controller creates many pods at once, of which several pass the first webhook before one is charged."""
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        labels = {"app": "serve"}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(gpus=1, **SIZE)}
        spec = {"replicas": 30, "selector": {"matchLabels": labels}, "template": template}
        serve = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, "spec": spec}
        applied = cluster.kubectl.run("apply", "-f", "-", "-n", fairgate.team_a, stdin=json.dumps(serve))
        assert "progressDeadlineSeconds (600) runs on while its pods are queued" in applied.stderr
        wait_for(cluster, lambda: in_line(cluster, fairgate.team_a) == 10, what="ten queued pods")
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="twenty run")
        assert fairgate.refused("TeamLimitExceeded") == 0
        events = cluster.kubectl.json("get", "events", "-n", fairgate.team_a)["items"]
        assert not [each["message"] for each in events if each["reason"] in ("FailedCreate", "Refused")]


def test_what_can_never_run_is_refused_at_once(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        refused = cluster.kubectl.run("create", "-f", "-", "-n", fairgate.team_a, stdin=pod_manifest("large", gpus=21))
        assert refused.returncode != 0
        assert "exceeded quota: team a: requested 21, limit 20" in refused.stderr
        assert list_pods(cluster, fairgate.team_a) == []


def create_all(cluster, pods):
    """Create pods, given as (namespace, pod), over several connections."""

    def create(share):
        api = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)
        try:
            for namespace, made in share:
                api.create(f"/api/v1/namespaces/{namespace}/pods", made)
        finally:
            api.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, [pods[number::8] for number in range(8)]))


def in_line(cluster, namespace):
    return sum(GATE in gates(each) for each in list_pods(cluster, namespace))


@pytest.mark.long
def test_a_leader_that_is_killed_while_it_releases_200_pods_leaves_none_uncharged_or_behind(cluster):
    make_nodes(cluster, 21)
    with serve_fairgate(cluster, limit_a=200, policy=QUEUES, replicas=3) as fairgate:
        for number in range(20):
            create_pod(cluster, fairgate.team_a, pod(f"holder-{number}", gpus=10, **SIZE))
        create_all(cluster, [(fairgate.team_a, pod(f"p-{number}", gpus=1, **SIZE)) for number in range(200)])
        wait_for(cluster, lambda: in_line(cluster, fairgate.team_a) == 200, what="200 queued pods")
        (leader,) = [n for n in range(3) if fairgate.metric("fairgate_leader", replica=n, lease="fairgate") == 1]
        for number in range(20):
            cluster.api.delete(f"/api/v1/namespaces/{fairgate.team_a}/pods/holder-{number}", {"gracePeriodSeconds": 0})
        wait_for(cluster, lambda: in_line(cluster, fairgate.team_a) < 190, what="releases have begun", poll=0.01)
        fairgate.stop(signal.SIGKILL, replica=leader)
        assert in_line(cluster, fairgate.team_a), "it was killed too late: all are released"
        others = [number for number in range(3) if number != leader]
        wait_for(cluster, lambda: in_line(cluster, fairgate.team_a) == 0, what="all are released")
        for number in range(200):
            wait_bound(cluster, fairgate.team_a, f"p-{number}")
        for number in others:
            wait_for(cluster, lambda n=number: fairgate.charged("a", replica=n) == 200, what=f"replica {number} agrees")
        wait_for(cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="nothing stays in flight")
        assert fairgate.ledger("a")["status"]["used"] == "200"


def test_a_pod_that_another_controller_holds_is_charged_and_placed_when_its_gate_goes(cluster):
    make_nodes(cluster, 2, prefix="left", labels={"flavor": "left"})
    make_nodes(cluster, 1, prefix="right", labels={"flavor": "right"})
    with serve_fairgate(cluster) as fairgate:
        held = pod("held", gpus=4, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}], **SIZE)
        create_pod(cluster, fairgate.team_a, held)
        found = get_pod(cluster, fairgate.team_a, "held")
        assert sorted(gates(found)) == [GATE, "kueue.x-k8s.io/admission"]
        assert "affinity" not in found["spec"]
        assert fairgate.charged("a") == 0
        create_pod(cluster, fairgate.team_a, pod("plain", gpus=2, **SIZE))
        wait_bound(cluster, fairgate.team_a, "plain")
        assert fairgate.charged("a") == 2
        narrowed = {"spec": {"schedulingGates": [{"name": GATE}], "nodeSelector": {"flavor": "right"}}}
        changed = cluster.kubectl.run(
            "patch", "pod", "held", "-n", fairgate.team_a, "--type=merge", "-p", json.dumps(narrowed)
        )
        assert changed.returncode == 0, changed.stderr
        assert wait_bound(cluster, fairgate.team_a, "held") == "right-0"
        assert fairgate.charged("a") == 6


def test_small_pods_run_ahead_as_preemptible_until_the_head_can_start(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=QUEUES) as fairgate, evictor(fairgate):
        for number in range(2):
            ends = {"labels": {TIER: "guaranteed"}, "terminationGracePeriodSeconds": 1}
            create_pod(
                cluster,
                fairgate.team_b,
                pod(f"long-{number}", gpus=5, **ends, **SIZE),
            )
            create_pod(
                cluster,
                fairgate.team_b,
                pod(f"short-{number}", gpus=5, **ends, **SIZE),
            )
        for name in ("long-0", "long-1", "short-0", "short-1"):
            wait_bound(cluster, fairgate.team_b, name)
        create_pod(cluster, fairgate.team_a, pod("head", gpus=8, **SIZE))
        for number in range(4):
            create_pod(cluster, fairgate.team_a, pod(f"small-{number}", gpus=2, **SIZE))
        assert in_line(cluster, fairgate.team_a) == 5
        end(cluster, fairgate.team_b, "short-0")
        wait_bound(cluster, fairgate.team_a, "small-0")
        wait_bound(cluster, fairgate.team_a, "small-1")
        assert get_pod(cluster, fairgate.team_a, "small-0")["metadata"]["labels"][TIER] == "preemptible"
        assert waits(cluster, fairgate.team_a, "head")
        node = get_pod(cluster, fairgate.team_a, "small-0")["spec"]["nodeName"]
        beside = next(
            each["metadata"]["name"]
            for each in list_pods(cluster, fairgate.team_b)
            if each["spec"]["nodeName"] == node and each["metadata"]["name"].startswith("long")
        )
        end(cluster, fairgate.team_b, beside)
        wait_for(cluster, lambda: not waits(cluster, fairgate.team_a, "head"), what="the head is released")
        assert get_pod(cluster, fairgate.team_a, "head")["metadata"]["labels"][TIER] == "guaranteed"
        head = get_pod(cluster, fairgate.team_a, "head")
        assert f'["{node}"]' in json.dumps(head["spec"]["affinity"]), "it is bound to the room that reclaim made"
        assert wait_bound(cluster, fairgate.team_a, "head") == node
        left = {each["metadata"]["name"] for each in list_pods(cluster, fairgate.team_a)}
        assert not {"small-0", "small-1"} <= left, "what ran ahead gave room back"
        assert waits(cluster, fairgate.team_a, "small-3"), "nothing starts on the room that the head takes"


def end(cluster, namespace, name):
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})


@pytest.mark.promise
@pytest.mark.long
def test_three_teams_share_what_is_idle_by_their_weights(cluster):
    make_nodes(cluster, 1, gpus=12)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        weights = {"one": 1, "other": 1, "double": 2}
        spaces = {name: make_namespace(cluster, f"weighed-{name}") for name in weights}
        teams = [
            {"name": name, "namespaces": [spaces[name]], "gpus": {"guaranteed": 0}, "weight": weight}
            for name, weight in weights.items()
        ]
        more = {"apiVersion": "fairgate.dev/v1alpha1", "kind": "Policy", "teams": teams}
        (fairgate.policy / "weighed.yaml").write_text(json.dumps(more))
        wait_for(cluster, lambda: cluster_knows(fairgate, "double"), what="the teams are known")
        ends = {"labels": {"fairgate.test/completes": "true"}, "annotations": {"fairgate.test/runs-for": "3s"}}
        count = {name: 60 * weight for name, weight in weights.items()}
        rounds = max(count.values())
        create_all(
            cluster,
            [
                (spaces[name], pod(f"p-{number}", gpus=1, restartPolicy="Never", **ends, **SIZE))
                for number in range(rounds)
                for name in weights
                if number < count[name]
            ],
        )
        used = Counter()
        began = time.monotonic()
        while time.monotonic() - began < 40 and all(in_line(cluster, space) > 6 for space in spaces.values()):
            for name in weights:
                used[name] += fairgate.charged(name)
            time.sleep(0.2)
        total = sum(used.values())
        shares = {name: used[name] / total for name in weights}
        for name, weight in weights.items():
            assert abs(shares[name] - weight / 4) < 0.05, shares


def cluster_knows(fairgate, team):
    return f'team="{team}"' in fairgate.get("/metrics")
