"""Pods that never are bound, and pods that never end: what they keep from others, and for how long."""

import time
from datetime import datetime

import pytest

from tests.attacks.attacker import make_attacker
from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_nodes,
    wait_for,
    wait_phase,
    wait_unschedulable,
)
from tests.scenarios.evictor import alive, evictor, wait_bound
from tests.scenarios.person import Person
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from tests.scenarios.test_department_limits import department
from tests.scenarios.test_owners import explain
from tests.scenarios.test_queue import QUEUES, SIZE

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

NEVER = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]}
"""A volume whose claim does not exist: kube-scheduler waits for it without end."""
BORROWS = {"labels": {TIER: "preemptible"}}


def _reasons(cluster, namespace):
    """The reasons of a namespace's Events: they are written after the deed."""
    return {each["reason"] for each in cluster.api.list(f"/api/v1/namespaces/{namespace}/events")}


def test_borrowers_whose_volume_does_not_exist_keep_no_gpus_from_a_pod_in_line(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=QUEUES) as fairgate:
        for number in range(2):
            create_pod(cluster, fairgate.team_a, pod(f"never-{number}", gpus=10, **BORROWS, **NEVER, **SIZE))
        for number in range(2):
            message = wait_unschedulable(cluster, fairgate.team_a, f"never-{number}")
            assert 'persistentvolumeclaim "missing" not found' in message
        assert fairgate.charged("a") == 20
        create_pod(cluster, fairgate.team_b, pod("owner", gpus=8, **SIZE))
        wait_bound(cluster, fairgate.team_b, "owner")
        assert get_pod(cluster, fairgate.team_b, "owner")["metadata"]["labels"][TIER] == "guaranteed"
        assert fairgate.charged("a") == 20, "they may be bound at any moment"


def test_borrowers_that_never_are_bound_make_room_under_a_limit(cluster):
    make_nodes(cluster, 2)
    policy = f"{QUEUES}reclaim: {{notice: 1s}}\n"
    with serve_fairgate(cluster, policy=policy) as fairgate, department(fairgate) as spaces, evictor(fairgate):
        nlp, vision = spaces["nlp"], spaces["vision"]
        for number in range(2):
            create_pod(cluster, nlp, pod(f"never-{number}", gpus=5, **BORROWS, **NEVER, **SIZE))
        for number in range(2):
            wait_unschedulable(cluster, nlp, f"never-{number}")
        create_pod(cluster, vision, pod("owner", gpus=4, **SIZE))
        wait_bound(cluster, vision, "owner")
        assert len(alive(cluster, nlp)) == 1, "no more than was needed"
        wait_for(
            cluster,
            lambda: {"EvictionPlanned", "Reclaimed"} <= _reasons(cluster, nlp),
            what="the notice that others get, too",
        )


def test_a_pod_that_cannot_start_for_too_long_is_deleted_and_says_why(cluster):
    make_nodes(cluster, 1)
    policy = "reclaim: {startWithin: 3s}\n"
    with serve_fairgate(cluster, limit_a=40, policy=policy) as fairgate, evictor(fairgate, "--repair-after", "2"):
        create_pod(cluster, fairgate.team_a, pod("never", gpus=4, **NEVER, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("large", gpus=10, **SIZE))
        create_pod(cluster, fairgate.team_a, pod("waits", gpus=10, **SIZE))
        wait_bound(cluster, fairgate.team_a, "large")
        wait_unschedulable(cluster, fairgate.team_a, "waits")
        wait_for(cluster, lambda: alive(cluster, fairgate.team_a) == ["large", "waits"], what="its time is over")
        wait_for(cluster, lambda: fairgate.charged("a") == 20, what="its charge has ended")
        wait_for(cluster, lambda: "NeverStarted" in _reasons(cluster, fairgate.team_a), what="it says why")
        events = cluster.api.list(f"/api/v1/namespaces/{fairgate.team_a}/events")
        (said,) = [each for each in events if each["reason"] == "NeverStarted"]
        assert said["involvedObject"]["name"] == "never"
        assert 'persistentvolumeclaim "missing" not found' in said["message"]


FROM_ALL = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
"""Anti-affinity to the pods of all namespaces: kube-scheduler obeys it."""


def test_a_pod_without_gpus_that_keeps_all_others_off_is_named_and_none_is_deleted_for_it(cluster):
    make_nodes(cluster, 1, labels={"zone": "z"})
    policy = "reclaim: {startWithin: 3s}\n"
    with serve_fairgate(cluster, limit_a=40, policy=policy) as fairgate, evictor(fairgate, "--repair-after", "2"):
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, theirs)
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [FROM_ALL]}
        attacker.create_pod(pod("culprit", affinity={"podAntiAffinity": required}))
        wait_bound(cluster, theirs, "culprit")
        create_pod(cluster, mine, pod("kept", gpus=4, **BORROWS, **SIZE))
        message = wait_unschedulable(cluster, mine, "kept")
        assert "didn't satisfy existing pods anti-affinity rules" in message
        create_pod(cluster, mine, pod("never", gpus=4, **BORROWS, **NEVER, **SIZE))
        wait_for(cluster, lambda: alive(cluster, mine) == ["kept"], what="only what nothing could start is deleted")
        explained = explain(fairgate, "pod/kept", "-n", mine).stdout
        assert f"required anti-affinity of pod {theirs}/culprit (topology key zone: 1 node)" in explained
        person = Person(cluster, "paula", mine)
        seen = person.fairgate("explain", "pod/kept", "-n", mine, "--policy", fairgate.policy).output
        assert "of a pod of another namespace" in seen
        assert "existing pods anti-affinity rules" in seen
        assert "culprit" not in seen
        attacker.api.delete(f"/api/v1/namespaces/{theirs}/pods/culprit")
        wait_bound(cluster, mine, "kept")


def test_a_pod_of_all_cpus_of_a_node_holds_back_no_other_while_daemons_run_everywhere(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=40, limit_b=40, policy=QUEUES) as fairgate:
        cluster.api.create(
            f"/apis/apps/v1/namespaces/{fairgate.team_b}/daemonsets",
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "agent"},
                "spec": {
                    "selector": {"matchLabels": {"app": "agent"}},
                    "template": {
                        "metadata": {"labels": {"app": "agent"}},
                        "spec": pod("agent", cpu="1")["spec"],
                    },
                },
            },
        )
        agents = lambda: [each for each in list_pods(cluster, fairgate.team_b) if each["spec"].get("nodeName")]  # noqa: E731
        wait_for(cluster, lambda: len(agents()) == 2, what="the daemons run")
        create_pod(cluster, fairgate.team_a, pod("head", gpus=1, cpu="64", memory="8Gi"))
        create_pod(cluster, fairgate.team_a, pod("sibling", gpus=8, labels={TIER: "guaranteed"}, **SIZE))
        create_pod(cluster, fairgate.team_b, pod("other", gpus=8, labels={TIER: "guaranteed"}, **SIZE))
        wait_bound(cluster, fairgate.team_b, "other")
        wait_bound(cluster, fairgate.team_a, "sibling")
        why = lambda: get_pod(cluster, fairgate.team_a, "head")["metadata"]["annotations"]["fairgate.dev/waiting"]  # noqa: E731
        wait_for(cluster, lambda: "such as those of DaemonSets: request less" in why(), what="it says why")


def test_a_deleted_pod_counts_until_its_node_reports_its_end_or_is_lost(cluster):
    """As ResourceQuota counts, but where a kubelet may still run the pod."""
    (node,) = make_nodes(cluster, 1)
    with serve_fairgate(cluster) as fairgate:
        create_pod(cluster, fairgate.team_a, pod("p", gpus=8, terminationGracePeriodSeconds=1, **SIZE))
        wait_phase(cluster, fairgate.team_a, "p", "Running")
        cluster.pause("kwok")
        try:
            cluster.api.delete(f"/api/v1/namespaces/{fairgate.team_a}/pods/p")
            deleted = get_pod(cluster, fairgate.team_a, "p")["metadata"]
            deadline = datetime.fromisoformat(deleted["deletionTimestamp"]).timestamp() + 1
            wait_for(cluster, lambda: time.time() > deadline + 2, what="its deadline is over")
            assert fairgate.charged("a") == 8, "its kubelet may still run it"
            taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}
            patch_taints(cluster, node, [taint])
            wait_for(cluster, lambda: fairgate.charged("a") == 0, what="it is lost")
            patch_taints(cluster, node, [])
            wait_for(cluster, lambda: fairgate.charged("a") == 8, what="its node is back")
        finally:
            cluster.resume("kwok")
        wait_for(cluster, lambda: not list_pods(cluster, fairgate.team_a), what="its end is reported")
        wait_for(cluster, lambda: fairgate.charged("a") == 0, what="it has ended")


def patch_taints(cluster, node, taints):
    cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})
