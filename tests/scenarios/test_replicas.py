"""Three replicas on one cluster: they share one limit, whichever dies; nothing is lost, and nothing is left over."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.control_plane.api import Api, ApiError
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.standing_fairgate import TIER, serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-more"},
    "spec": {"hard": {"pods": "0"}, "scopes": ["NotTerminating"]},
}
"""A quota of some pods only, which Fairgate does not judge: the API server refuses the pod after the charge."""


def racing(cluster, namespace, count, *, prefix="racer", gpus=1, **spec):
    """Create pods all at once, each over a connection of its own; returns the refusals."""

    def create(number):
        api = Api(port=cluster.ports.api_server, ca_pem=cluster.authority.pem, token=cluster.token)
        try:
            api.create(f"/api/v1/namespaces/{namespace}/pods", pod(f"{prefix}-{number}", gpus=gpus, **spec, **SIZE))
        except ApiError as error:
            return str(error)
        finally:
            api.close()
        return None

    with ThreadPoolExecutor(count) as pool:
        return [text for text in pool.map(create, range(count)) if text is not None]


def is_at_rest(fairgate, team):
    found = fairgate.ledger(team)
    assert found["ledger"]["inFlight"] == [], f"{len(found['ledger']['inFlight'])} in flight"
    return found


@pytest.mark.promise
def test_forty_concurrent_pods_at_three_replicas_get_exactly_twenty_gpus(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, replicas=3) as fairgate:
        refusals = racing(cluster, fairgate.team_a, 40)
        assert len(list_pods(cluster, fairgate.team_a)) == 20
        assert len(refusals) == 20
        assert all("exceeded quota: team a: requested 1, limit 20" in text for text in refusals)
        status = wait_for(cluster, lambda: is_at_rest(fairgate, "a"), what="the ledger at rest")["status"]
        assert (status["used"], status["reserved"], status["beyondShare"]) == ("20", "0", "0")
        for number in range(3):
            wait_for(cluster, lambda n=number: fairgate.charged("a", replica=n) == 20, what=f"replica {number} agrees")
        written = [fairgate.metric("fairgate_ledger_writes_total", replica=number) for number in range(3)]
        assert sum(count > 0 for count in written) >= 2, f"only one replica was asked: {written}"


@pytest.mark.promise
def test_a_replica_that_is_killed_right_after_its_answer_loses_no_charge(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, replicas=2) as fairgate:
        fairgate.pause(1)  # its watches receive nothing: it knows of these pods only what the ledger has
        racing(cluster, fairgate.team_a, 12)
        assert list_pods(cluster, fairgate.team_a), "what was sent to the frozen one may fail, not all"
        fairgate.stop(signal.SIGKILL, replica=0)
        fairgate.resume(1)
        fairgate.wait_served()
        refusals = racing(cluster, fairgate.team_a, 20, prefix="second")
        assert len(list_pods(cluster, fairgate.team_a)) == 20, refusals


@pytest.mark.long
def test_a_charge_whose_pod_was_never_stored_is_released_after_ninety_seconds(cluster):
    make_nodes(cluster, 4)
    with serve_fairgate(cluster, replicas=2) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("there", gpus=1, **SIZE))
        with pytest.raises(ApiError, match="already exists"):
            create_pod(cluster, fairgate.team_a, pod("there", gpus=1, **SIZE))
        cluster.kubectl.apply([QUOTA], "-n", fairgate.team_b)
        wait_for(
            cluster,
            lambda: "hard" in cluster.kubectl.json("get", "resourcequota", "no-more", "-n", fairgate.team_b)["status"],
            what="the quota in force",
        )
        with pytest.raises(ApiError, match="exceeded quota: no-more"):
            create_pod(cluster, fairgate.team_b, pod("too-many", gpus=3, **SIZE))
        for team, used in (("a", "1"), ("b", "0")):

            def is_true(team=team, used=used):
                status = is_at_rest(fairgate, team)["status"]
                assert (status["used"], status["reserved"]) == (used, "0"), status
                return True

            wait_for(cluster, is_true, what=f"team {team}'s orphans gone", timeout=90)
        assert sum(fairgate.metric("fairgate_ledger_orphans_total", replica=number) for number in (0, 1)) >= 1


def test_the_ledger_as_users_see_it(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        cluster.kubectl.apply([job("train", pods=6, gpus=4, **SIZE)], "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(list_pods(cluster, fairgate.team_a)) == 6, what="six pods of four GPUs")
        want = "a a 20 40 24 0 4 4 8"

        def shown():
            lines = cluster.kubectl("get", "teamledgers").splitlines()
            found = next(line for line in lines if line.startswith("a "))
            assert found.split()[:9] == want.split(), found
            return lines

        head = wait_for(cluster, shown, what="the team's line")[0]
        columns = "NAME SHARE OF GUARANTEED LIMIT USED RESERVED PREEMPTIBLE BEYOND SHARE WAITING QUEUED AGE"
        assert head.split() == columns.split()
        stored = json.loads(cluster.kubectl("get", "teamledger", "a", "-o", "json", "--show-managed-fields"))
        assert "managedFields" not in stored["metadata"]


def test_a_pod_that_bypasses_the_webhook_is_charged_and_gets_an_event(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, is_own=True) as fairgate:
        for kind, name in (("mutating", "zz-fairgate"), ("validating", "fairgate")):
            cluster.kubectl("delete", f"{kind}webhookconfiguration", name)

        def comes_in():
            return TIER not in create_pod(
                cluster, fairgate.team_a, pod(f"past-{len(list_pods(cluster, fairgate.team_a))}", gpus=1, **SIZE)
            )["metadata"].get("labels", {})

        wait_for(cluster, comes_in, what="a pod that bypasses the webhook")
        wait_for(cluster, lambda: fairgate.metric("fairgate_bypassing_pods_total") >= 1, what="it is counted")
        log = cluster.processes.log(fairgate.replicas[0].name, lines=400)
        assert f'"event":"pod bypassed the webhook","team":"a","holder":"{fairgate.team_a}/Pod/past-' in log


def test_as_many_pods_of_a_job_start_as_have_room_whichever_replica_was_asked(cluster):
    """Room that a replica chose for pods that are never created ends without a further request, on each of them."""
    make_nodes(cluster, 2, gpus=8)
    policy = "defaults: {onLimit: queue, onNoRoom: queue}\n"
    with serve_fairgate(cluster, replicas=2, policy=policy) as fairgate:
        label = "pod-security.kubernetes.io/enforce=baseline"
        cluster.kubectl("label", "namespace", fairgate.team_b, label)
        create_pod(cluster, fairgate.team_a, pod("first", gpus=8, **SIZE))
        wait_bound(cluster, fairgate.team_a, "first")
        refusals = racing(cluster, fairgate.team_b, 16, gpus=2, hostNetwork=True)
        assert len(refusals) == 16
        assert all("violates PodSecurity" in text for text in refusals)
        cluster.kubectl.apply([job("train", pods=80, gpus=2, **SIZE)], "-n", fairgate.team_a)
        cluster.kubectl("delete", "pod", "first", "-n", fairgate.team_a)
        wait_for(cluster, lambda: len(started(cluster, fairgate.team_a)) == 8, what="the pods that have room start")


def started(cluster, namespace):
    return [each for each in list_pods(cluster, namespace) if each["spec"].get("nodeName")]
