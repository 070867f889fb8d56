"""Attacks on what a team is charged: pods that outlive their charge, charges without pods, users, labels, numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_bound,
    wait_for,
)
from tests.scenarios.standing_fairgate import FairgateServer, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
YEAR = 31_536_000
CLOSED = {"key": "example.com/closed", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture
def fairgate(cluster: ControlPlane) -> Iterator[FairgateServer]:
    make_nodes(cluster, 4)
    with serve_fairgate(cluster) as running:
        yield running


@pytest.fixture
def attacker(fairgate: FairgateServer) -> Attacker:
    return make_attacker(fairgate.cluster, fairgate.team_a)


def sized(name: str, gpus: int, **more: object) -> dict:
    return pod(name, gpus=gpus, **SIZE, **more)


def test_a_grace_period_of_a_year_is_refused(attacker):
    message = attacker.refused(sized("p", 1, terminationGracePeriodSeconds=YEAR), code="GracePeriodTooLong")
    assert "pods with GPUs may have at most 600" in message
    made = attacker.create(pod("free", terminationGracePeriodSeconds=YEAR))
    assert made.returncode == 0, made.stderr


def test_a_grace_period_cannot_be_raised_later_either(attacker):
    attacker.create_pod(sized("p", 1, terminationGracePeriodSeconds=5))
    wait_bound(attacker.cluster, attacker.namespace, "p")
    longer = json.dumps({"spec": {"terminationGracePeriodSeconds": YEAR}})
    assert attacker.kubectl("patch", "pod", "p", "--patch", longer).returncode != 0, "Kubernetes' own rule"
    for deletion in (("pod", "p"), ("pods", "--all")):
        done = attacker.kubectl("delete", *deletion, "--wait=false", f"--grace-period={YEAR}")
        assert "(GracePeriodTooLong)" in done.stderr, (done.stdout, done.stderr)
    pods = f"/api/v1/namespaces/{attacker.namespace}/pods"
    with pytest.raises(ApiError, match="GracePeriodTooLong"):
        attacker.api.delete(pods, {"gracePeriodSeconds": YEAR}, gracePeriodSeconds=str(YEAR))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    path = f"{pods}/p/eviction"
    with pytest.raises(ApiError, match="GracePeriodTooLong"):
        attacker.api.create(path, eviction | {"deleteOptions": {"gracePeriodSeconds": YEAR}})
    attacker.api.create(path, eviction | {"deleteOptions": {"gracePeriodSeconds": 10}})


def test_a_force_deleted_pod_is_charged_while_its_node_may_run_it(fairgate, attacker):
    wait_for(attacker.cluster, lambda: fairgate.metric("fairgate_leader") == 1, what="it leads")
    make_nodes(attacker.cluster, 1, prefix="closed", gpus=20, taints=[CLOSED])
    attacker.create_pod(sized("p", 20, terminationGracePeriodSeconds=3))
    assert list_pods(attacker.cluster, attacker.namespace), (
        "only a node that it does not tolerate is large enough: it waits"
    )
    attacker.kubectl("delete", "pod", "p")
    wait_for(attacker.cluster, lambda: fairgate.charged("a") == 0, what="a pod on no node leaves nothing behind")
    for name in ("p", "q"):
        attacker.create_pod(sized(name, 10, terminationGracePeriodSeconds=14))
        wait_for(
            attacker.cluster,
            lambda name=name: get_pod(attacker.cluster, attacker.namespace, name)["status"].get("startTime"),
            what="reported by its node",
        )
    attacker.kubectl("delete", "pod", "p", "q", "--force", "--grace-period=0")
    refused = attacker.refused(sized("r", 1), code="TeamLimitExceeded")
    assert "used 0, reserved 20 (20 of pods deleted by force)" in refused
    entries = wait_for(
        attacker.cluster,
        lambda: [entry for entry in fairgate.ledger("a")["ledger"]["inFlight"] if "lingers" in entry],
        what="written, for other replicas",
    )
    assert {entry["lingers"] for entry in entries} == {19}
    wait_for(attacker.cluster, lambda: attacker.create(sized("r", 1)).returncode == 0, what="room again")


def test_a_pod_that_kubelet_ended_leaves_no_charge(fairgate, attacker):
    attacker.create_pod(sized("p", 10, terminationGracePeriodSeconds=600))
    wait_bound(attacker.cluster, attacker.namespace, "p")
    attacker.kubectl("delete", "pod", "p")
    wait_for(attacker.cluster, lambda: fairgate.charged("a") == 0, what="its charge gone")


@pytest.mark.parametrize("taken_by", ["a pod with GPUs", "a pod without", "a pod that waits"])
def test_creating_an_existing_name_is_not_charged(fairgate, attacker, taken_by):
    gate_ = {"schedulingGates": [{"name": "example.org/never"}]} if taken_by == "a pod that waits" else {}
    attacker.create_pod(sized("taken", 1, **gate_) if "with GPUs" in taken_by else pod("taken", **gate_))
    held = 1 if "with GPUs" in taken_by else 0
    wait_for(attacker.cluster, lambda: len(list_pods(attacker.cluster, attacker.namespace)) == 1, what="the pod")
    for _ in range(3):
        done = attacker.create(sized("taken", 10))
        assert "AlreadyExists" in done.stderr, done.stderr
    assert fairgate.charged("a") <= held + 10, "at most one from before the watch event"
    wait_for(attacker.cluster, lambda: "(AlreadyExists)" in attacker.create(sized("taken", 10)).stderr, what="known")


def test_creating_a_pod_that_a_resource_quota_refuses_is_not_charged(fairgate, attacker):
    cluster, other = attacker.cluster, make_namespace(attacker.cluster, f"{attacker.namespace}-two")
    quotas = f"/api/v1/namespaces/{attacker.namespace}/resourcequotas"
    cluster.api.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.nvidia.com/gpu": "5"}}})
    wait_for(cluster, lambda: cluster.api.get(f"{quotas}/q")["status"].get("used"), what="the quota summed up")
    attacker.create_pod(sized("first", 5))
    wait_for(
        cluster,
        lambda: "(ResourceQuotaExceeded)" in attacker.create(sized("p", 1)).stderr,
        what="the quota is known to be full",
    )
    before = fairgate.charged("a")
    assert before <= 6, "at most one from before the watch event"
    for number in range(3):
        refused = attacker.refused(sized(f"p{number}", 10), code="ResourceQuotaExceeded")
        assert "exceeded quota: q, requested: requests.nvidia.com/gpu=10, used: requests.nvidia.com/gpu=5" in refused
    assert fairgate.charged("a") == before
    create_pod(cluster, other, sized("honest", 10))
    attacker.kubectl("delete", "pod", "first", "--grace-period=1")
    wait_for(cluster, lambda: attacker.create(sized("p", 3)).returncode == 0, what="the quota has room again")


def test_concurrent_creations_of_one_name_are_charged_once(fairgate, attacker):
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda _: attacker.create(sized("twin", 2)).returncode, range(10)))
    assert done.count(0) == 1
    wait_for(attacker.cluster, lambda: fairgate.charged("a") == 2, what="one pod charged")


def test_labels_and_decisions_are_not_forged_on_pods_without_gpus(attacker):
    for forged in (
        {"labels": {"fairgate.dev/team": "b"}},
        {"labels": {"fairgate.dev/tier": "guaranteed"}},
        {"annotations": {"fairgate.dev/decision": "{}"}},
    ):
        attacker.refused(pod("forged", **forged), code="ProtectedKeyChanged")
    claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "none"}]}
    refused = attacker.create(pod("forged", labels={"fairgate.dev/team": "b"}, **claims))
    assert refused.returncode != 0, "a request that reaches Fairgate"


def test_the_largest_possible_job_gets_a_warning(attacker):
    done = attacker.create(job("huge", pods=2**31 - 1, gpus=1, **SIZE), "--dry-run=server")
    assert "needs 2147483647 GPUs, team a's limit is 20" in done.stderr


ASKED_FOR = f"key-00000{'x' * 50}"


def test_large_labels_delay_no_other_charge(fairgate, attacker):
    labels = {f"key-{number:05}{'x' * 50}": "x" * 63 for number in range(200)}
    spread = {"maxSkew": 5, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spread["labelSelector"] = {"matchLabels": {ASKED_FOR: "x" * 63}}

    def create(number: int) -> int:
        if number % 3 == 0:
            return attacker.create(sized(f"small-{number}", 1)).returncode
        large = sized(f"large-{number}", 1, labels=labels, topologySpreadConstraints=[spread])
        return attacker.create(large).returncode

    with ThreadPoolExecutor(9) as pool:
        assert list(pool.map(create, range(9))) == [0] * 9
    for entry in fairgate.ledger("a")["ledger"].get("inFlight", []):
        assert set(entry.get("labels", {})) <= {ASKED_FOR}
    assert fairgate.metric("fairgate_ledger_writes_total", result="too_large") == 0


def test_service_accounts_do_not_multiply_a_user(cluster):
    namespace = make_namespace(cluster)
    share = {"name": "c", "namespaces": [namespace], "gpus": {"limit": 20}, "perUser": {"limit": 6}}
    with serve_fairgate(cluster) as fairgate:
        head = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"
        (fairgate.policy / "more.yaml").write_text(f"{head}teams: {json.dumps([share])}\n")
        try:
            wait_for(cluster, lambda: 'team="c"' in fairgate.get("/metrics"), what="team c")
            _multiply(make_attacker(cluster, namespace, "eve"))
        finally:
            (fairgate.policy / "more.yaml").unlink()


def _multiply(eve: Attacker) -> None:
    pods = f"/api/v1/namespaces/{eve.namespace}/pods"
    for number in range(3):
        name = f"robot-{number}"
        assert eve.kubectl("create", "serviceaccount", name).returncode == 0
        binding = ("create", "rolebinding", name, "--clusterrole=edit", f"--serviceaccount={eve.namespace}:{name}")
        assert eve.kubectl(*binding).returncode == 0
        robot = eve.cluster.acting_as(f"system:serviceaccount:{eve.namespace}:{name}")
        wait_for(eve.cluster, lambda robot=robot: robot.list(pods) is not None, what="its rights")
        if number == 0:
            robot.create(pods, sized("first", 4))
            continue
        with pytest.raises(ApiError, match="UserLimitExceeded") as refused:
            robot.create(pods, sized(name, 4))
        assert f"user system:serviceaccounts:{eve.namespace} in team c: requested 4, limit 6, used" in str(
            refused.value
        )
