"""GPU-hours agree with what really ran, by history files and by Prometheus, across the death of the leader."""

import json
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from datetime import datetime

import pytest
from click.testing import CliRunner

from tests.control_plane.objects import pod
from tests.control_plane.prometheus import prometheus
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_for
from tests.scenarios.serving import total
from tests.scenarios.standing_fairgate import serve_fairgate
from webhook.cli.main import main
from webhook.kube.objects.keys import AUDIENCE, READER, TOKEN_HEADER

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

CHARGED = "fairgate_gpus_charged"
GPU_SECONDS = "fairgate_gpu_seconds_total"
WAVES = 6
WAVE_SECONDS = 6.0
COMPLETES = {"fairgate.test/completes": "true"}
SIZE = {"cpu": "1", "memory": "1Gi"}


def usage(*arguments):
    done = CliRunner().invoke(main, ["usage", "--since", "2h", "-o", "json", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def held(report):
    return {each["name"]: 3600 * (each["guaranteed"] + each["preemptible"]) for each in report["usage"]}


def at(text):
    return datetime.fromisoformat(text).timestamp()


def ran(found):
    """The GPU-seconds of a pod that ended, from its scheduling to its end."""
    (status,) = found["status"]["containerStatuses"]
    (scheduled,) = (each for each in found["status"]["conditions"] if each["type"] == "PodScheduled")
    gpus = int(found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    return gpus * (at(status["state"]["terminated"]["finishedAt"]) - at(scheduled["lastTransitionTime"]))


def wave(cluster, fairgate, number):
    """Pods of both teams, of different sizes and run times."""
    for index in range(4):
        for name, namespace in (("a", fairgate.team_a), ("b", fairgate.team_b)):
            seconds = 9 + 5 * index + number
            made = pod(
                f"{name}-{number}-{index}",
                gpus=1 + index % 2,
                labels=COMPLETES,
                annotations={"fairgate.test/runs-for": f"{seconds}s"},
                **SIZE,
            )
            create_pod(cluster, namespace, made)


def counted(fairgate, metrics, replica):
    """The GPU-seconds that a replica has counted as leader, by its own page and as Prometheus has last seen it."""
    shown = total(fairgate.get("/metrics", replica=replica), GPU_SECONDS)
    series = metrics.query(f'{GPU_SECONDS}{{instance="{address(fairgate, replica)}"}}')
    return shown, sum(float(each["value"][1]) for each in series)


def address(fairgate, replica):
    return fairgate.replicas[replica].url.partition("://")[2]


def leader(fairgate):
    return next(n for n in range(2) if fairgate.metric("fairgate_leader", replica=n, lease="fairgate"))


def scrape(fairgate):
    return {
        "job_name": "servers",
        "scheme": "https",
        "tls_config": {"ca_file": str(fairgate.ca)},
        "static_configs": [{"targets": [address(fairgate, number) for number in range(len(fairgate.replicas))]}],
    }


@pytest.mark.usefixtures("promtool")
@pytest.mark.parametrize("within", [0.03, pytest.param(0.01, marks=pytest.mark.long, id="on a quiet machine")])
def test_gpu_hours_agree_with_what_ran_though_the_leader_is_killed_meanwhile(cluster, within):
    """`within`: a replica sees each start and end later than the API server, on a busy machine not equally late."""
    make_nodes(cluster, 8)
    with (
        serve_fairgate(cluster, limit_a=40, limit_b=40, replicas=2, has_history=True) as fairgate,
        prometheus(cluster, [scrape(fairgate)]) as metrics,
    ):
        for number in range(WAVES):
            begun = time.monotonic()
            if number == WAVES // 2:
                killed = leader(fairgate)
                fairgate.stop(signal.SIGKILL, replica=killed)
            if number == WAVES - 1:
                fairgate.start(killed)
            wave(cluster, fairgate, number)
            time.sleep(max(0.0, WAVE_SECONDS - (time.monotonic() - begun)))
        teams = {"a": fairgate.team_a, "b": fairgate.team_b}

        def all_ended():
            pods = {team: list_pods(cluster, namespace) for team, namespace in teams.items()}
            return all(each["status"]["phase"] == "Succeeded" for found in pods.values() for each in found) and pods

        pods = wait_for(cluster, all_ended, what="all pods ended", timeout=90)
        want = {team: sum(map(ran, found)) for team, found in pods.items()}
        assert min(want.values()) > 400
        for replica in range(2):
            wait_for(cluster, lambda n=replica: fairgate.metric(CHARGED, replica=n) == 0, what="their ends are seen")
            wait_for(cluster, lambda n=replica: len({*counted(fairgate, metrics, n)}) == 1, what="it is scraped")

        live = usage("--kubeconfig", reader(cluster))
        found = metrics.query(f"sum by (team) (increase({GPU_SECONDS}[2h]))")
        by_prometheus = {each["metric"]["team"]: float(each["value"][1]) for each in found}
        fairgate.stop()
        histories = [flag for path in fairgate.histories for flag in ("--history", path)]
        by_history = usage(*histories)
        assert held(by_history) == pytest.approx(want, rel=within)
        for team, seconds in want.items():  # no leader counts while it is not known to lead
            assert 0.5 * seconds < by_prometheus[team] < 1.05 * seconds
        assert held(live) == pytest.approx(want, rel=0.3)  # of the one replica that was asked: it may be the killed one
        idle = {each["name"]: 3600 * (each["guaranteed"] + each["idle"]) for each in by_history["usage"]}
        shares = 20 * 3600 * by_history["observedHours"]
        assert idle == pytest.approx({"a": shares, "b": shares}, rel=0.1)
        by_model = usage("--by", "model", *histories)
        assert sum(held(by_model).values()) == pytest.approx(sum(want.values()), rel=within)
        check_replay(fairgate, pods)


def check_replay(fairgate, pods):
    """The recorded pods get the same tiers again under the same policy."""
    done = CliRunner().invoke(
        main, ["replay", *map(str, fairgate.histories), "--policy", str(fairgate.policy), "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["pods"] == sum(map(len, pods.values()))
    assert found["leftOut"] == {}
    for team in found["teams"]:
        tiers = Counter(each["metadata"]["labels"]["fairgate.dev/tier"] for each in pods[team["team"]])
        assert (team["new"]["guaranteed"], team["new"]["preemptible"]) == (tiers["guaranteed"], tiers["preemptible"])
        assert (team["new"]["refused"], team["new"]["queued"], team["new"]["notStarted"]) == (0, 0, 0)


def test_only_who_may_list_all_pods_reads_usage(cluster):
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, has_history=True) as fairgate:
        kubeconfig = reader(cluster)
        assert usage("--kubeconfig", kubeconfig)["by"] == "team"

        def status(token):
            headers = {} if token is None else {TOKEN_HEADER: token}
            url = f"{fairgate.url}/usage?since=0&until=9"
            context = ssl.create_default_context(cafile=fairgate.ca)
            try:
                with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code

        def token(name, *audiences, namespace="default"):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            spec = {"audiences": [*audiences], "expirationSeconds": 600}
            made = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            return cluster.api.create(path, made)["status"]["token"]

        assert status(token(READER, AUDIENCE)) == 200
        refused = {
            "without a token": status(None),
            "a word": status("word"),
            "a token for the API server": status(cluster.service_account_token("default", READER)),
            "of an account that may list no pods": status(token("default", AUDIENCE, namespace=fairgate.team_a)),
            "a token that is too long": status("x" * 7000),
        }
        assert set(refused.values()) == {403}, refused

        other = cluster.service_account_kubeconfig(fairgate.team_a)
        done = CliRunner().invoke(main, ["usage", "--kubeconfig", str(other)])
        assert done.exit_code == 2
        assert "RBAC must grant this user the verb get on validatingwebhookconfigurations" in done.output


def reader(cluster):
    """The admin's kubeconfig, once the ServiceAccount that reads usage may list pods."""
    account = {"kind": "ServiceAccount", "name": READER, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    rbac = "rbac.authorization.k8s.io/v1"
    binding = {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": READER}, "subjects": [account]}
    cluster.kubectl.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": "default"}},
            {**binding, "roleRef": role},
        ]
    )
    return cluster.kubeconfig
