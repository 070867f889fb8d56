"""A namespace admin who writes the same annotation on the own pods all the time: what must happen to them does.

Each write gives the pod another resourceVersion, tens of times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http import HTTPStatus

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import get_pod, make_namespace, make_nodes, wait_for, wait_phase, wait_second_after
from tests.scenarios.evictor import alive, ask, evictor, fill, wait_bound
from tests.scenarios.serving import wait_policy, write_policy
from tests.scenarios.standing_fairgate import TEAM, TIER, serve_fairgate
from tests.scenarios.test_minimums import autoscaler, service, tiers

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

BORROW = {TIER: "preemptible"}
WRITERS = 8
SLOW = {"fairgate.test/starts-after": "1h"}
"""A long init container: the pod is on its node, and does not run."""
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "all"},
    "spec": {"minAvailable": 0, "selector": {}},
}
SIZE = {"cpu": "1", "memory": "1Gi"}


@contextmanager
def storm(attacker: Attacker, *names: str) -> Iterator[None]:
    """Write an annotation of each pod all the time, by several writers."""
    over, writes = threading.Event(), [0] * WRITERS

    def write(number: int) -> None:
        api = attacker.cluster.acting_as(attacker.user, connection=number + 1)
        while not over.is_set():
            for name in names:
                body = {"metadata": {"annotations": {"mine": f"{number}-{writes[number]}"}}}
                try:
                    api.patch(f"/api/v1/namespaces/{attacker.namespace}/pods/{name}", body)
                except ApiError as error:
                    if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                        raise
                writes[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for each in threads:
        each.start()
    try:
        wait_for(attacker.cluster, lambda: min(writes) > len(names), what="they write")
        yield
    finally:
        over.set()
        for each in threads:
            each.join()


def tier(attacker: Attacker, name: str) -> str | None:
    labels = get_pod(attacker.cluster, attacker.namespace, name)["metadata"].get("labels", {})
    return labels.get(TIER) if TEAM in labels else None


@pytest.mark.parametrize("is_stormy", [True, False], ids=["with the storm", "control"])
@pytest.mark.parametrize("has_budget", [False, True], ids=["no budget", "a budget that allows it"])
def test_a_borrower_that_does_not_run_yet_goes_and_no_honest_one_instead(cluster, is_stormy, has_budget):
    make_nodes(cluster, 2, gpus=4)
    honest = make_namespace(cluster)
    policy = "defaults: {unknownTeam: preemptible}"
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate, evictor(fairgate) as running:
        attacker = make_attacker(cluster, fairgate.team_a)
        older = fill(cluster, honest, 1, prefix="honest", gpus=4)
        wait_second_after(cluster, get_pod(cluster, honest, *older)["status"]["startTime"])
        if has_budget:  # one pod is ready: it allows an eviction
            assert attacker.create(BUDGET).returncode == 0
            fill(cluster, attacker.namespace, 1, prefix="calm", gpus=0)
            budget = f"/apis/policy/v1/namespaces/{attacker.namespace}/poddisruptionbudgets/all"
            wait_for(
                cluster, lambda: cluster.api.get(budget)["status"]["disruptionsAllowed"] == 1, what="it is counted"
            )
        attacker.create_pod(pod("slow", gpus=4, labels=BORROW, annotations=SLOW, **SIZE))
        wait_bound(cluster, attacker.namespace, "slow")
        with storm(attacker, "slow") if is_stormy else nullcontext():
            ask(cluster, fairgate.team_b, "b", gpus=4)
            wait_bound(cluster, fairgate.team_b, "b")
        assert "slow" not in alive(cluster, attacker.namespace)
        assert alive(cluster, honest) == older
        (line,) = running.said("evicted")
        assert line["name"] == "slow"


def test_labels_and_gates_are_written_once_each_whatever_its_owner_writes(start_control_plane):
    """A borrower on a node by `nodeName`, pods of a share that is lowered, and a pod that waits in line."""
    cluster = start_control_plane(audit=True)
    make_nodes(cluster, 3)
    with serve_fairgate(cluster, policy="defaults: {onLimit: queue}", is_own=True) as fairgate:
        attacker = make_attacker(cluster, fairgate.team_a)
        for number in range(2):
            attacker.create_pod(pod(f"p{number}", gpus=5, **SIZE))
            wait_phase(cluster, attacker.namespace, f"p{number}", "Running")
        attacker.create_pod(pod("direct", gpus=10, nodeName="node-2", **SIZE))
        attacker.create_pod(pod("waits", gpus=5, **SIZE))
        names = ("p0", "p1", "direct", "waits")
        with storm(attacker, *names):
            wait_for(cluster, lambda: tier(attacker, "direct"), what="it has a tier")
            lowered = (fairgate.policy / "teams.yaml").read_text().replace('"guaranteed": 20', '"guaranteed": 5')
            write_policy(fairgate.policy, lowered)
            wait_policy(cluster, fairgate.policy, lambda: fairgate.get("/readyz"))
            wait_for(cluster, lambda: tier(attacker, "p1") == "preemptible", what="it is demoted")
            wait_for(cluster, lambda: tier(attacker, "direct") == "preemptible", what="this one, too")
            attacker.kubectl("delete", "pod", "direct", "--force", "--grace-period=0")
            wait_bound(cluster, attacker.namespace, "waits")
        written = [
            (event["objectRef"]["name"], event["responseStatus"]["code"])
            for event in cluster.audit_events()
            if event["verb"] == "patch"
            and "fieldManager=fairgate" in event["requestURI"]
            and event["objectRef"]["name"] in names
        ]
        assert {code for _, code in written} == {HTTPStatus.OK}
        assert {"p1", "direct", "waits"} <= {name for name, _ in written}


def test_minimums_that_are_swapped_all_the_time_keep_no_gpu_and_change_no_tier(cluster):
    """Each swap would make the announced victims guaranteed, and others borrow, which would be announced then."""
    make_nodes(cluster, 2)
    policy = "reclaim: {notice: 20s}"
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=policy) as fairgate:
        attacker, names = make_attacker(cluster, fairgate.team_a), ("left", "right")
        lowered = (fairgate.policy / "teams.yaml").read_text().replace('"guaranteed": 20', '"guaranteed": 10', 1)
        write_policy(fairgate.policy, lowered)
        wait_policy(cluster, fairgate.policy, lambda: fairgate.get("/readyz"))
        for name, least in zip(names, (9, 1), strict=True):
            for made in (service(name, replicas=10, asks={}), autoscaler(name, least=least, most=20)):
                assert attacker.create(made).returncode == 0
        full = {"left": {"guaranteed": 9, "preemptible": 1}, "right": {"guaranteed": 1, "preemptible": 9}}
        wait_for(
            cluster, lambda: {name: tiers(cluster, attacker.namespace, name) for name in names} == full, what="full"
        )
        changes = fairgate.metric("fairgate_tier_changes_total")
        over = threading.Event()

        def swap() -> None:
            turn = 0
            api = cluster.acting_as(attacker.user, connection=1)
            while not over.wait(2):
                turn += 1
                for name, least in zip(names, (1, 9) if turn % 2 else (9, 1), strict=True):
                    path = f"/apis/autoscaling/v2/namespaces/{attacker.namespace}/horizontalpodautoscalers/{name}"
                    api.patch(path, {"spec": {"minReplicas": least}})

        swapping = threading.Thread(target=swap)
        with evictor(fairgate) as running:
            swapping.start()
            try:
                ask(cluster, fairgate.team_b, "b", gpus=4)
                wait_for(cluster, lambda: running.said("plan"), what="a plan")
                victim = running.said("plan")[0]["victims"][0].rpartition("/")[2]
                forged = attacker.kubectl("annotate", "pod", victim, "fairgate.dev/evict-at-", "--overwrite")
                assert "(ProtectedKeyChanged)" in forged.stderr
                wait_bound(cluster, fairgate.team_b, "b")
            finally:
                over.set()
                swapping.join()
            assert len(running.said("plan")) == 1, "one notice, and no other"
        assert fairgate.metric("fairgate_tier_changes_total") == changes
