"""Attacks of a namespace admin who tries to keep borrowed GPUs, or to have others' pods evicted without need."""

import time
from datetime import UTC, datetime

import pytest

from tests.attacks.attacker import Attacker, make_attacker
from tests.control_plane.objects import pod
from tests.control_plane.workbench import (
    create_pod,
    get_pod,
    list_pods,
    make_namespace,
    make_nodes,
    wait_for,
    wait_unschedulable,
)
from tests.scenarios.evictor import alive, ask, evicted, evictor, fill, held_nodes, wait_bound
from tests.scenarios.standing_fairgate import TEAM, TIER, serve_fairgate

pytestmark = pytest.mark.cluster

BORROW = {TIER: "preemptible"}
STUBBORN = {"fairgate.test/ignores-sigterm": "true"}
YEAR = 86_400 * 365
EVERYTHING = [{"operator": "Exists"}]
MIRROR = {"kubernetes.io/config.mirror": "x"}
STAY = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
}


def on(node: str, **more: object) -> dict[str, object]:
    """What binds a pod to a node by way of the scheduler."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}, **more}


def tier(cluster, namespace, name):
    labels = get_pod(cluster, namespace, name)["metadata"]["labels"]
    return labels.get(TIER) if TEAM in labels else None


def budget(attacker: Attacker, name: str, labels: dict[str, str]) -> None:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    assert attacker.create(made).returncode == 0


def daemon_set(node: str, **spec: object) -> dict[str, object]:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": pod("d", **on(node, **spec))["spec"]}
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}


def test_pods_placed_externally_are_inside_the_share_or_evicted(cluster):
    make_nodes(cluster, 5)
    stray = make_namespace(cluster)
    with (
        serve_fairgate(cluster, limit_a=60, limit_b=40, policy="defaults: {unknownTeam: preemptible}") as fairgate,
        evictor(fairgate),
    ):
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker, drifter = make_attacker(cluster, mine), make_attacker(cluster, stray, "drifter")
        # a label, an annotation of its own
        labelled = pod("p", gpus=1, nodeName="node-0", labels={TIER: "guaranteed"})
        attacker.refused(labelled, code="ProtectedKeyChanged")
        attacker.refused(pod("p", gpus=1, nodeName="node-0", annotations=MIRROR), code="InvalidRequest")
        # another scheduler with a nodeName; a nodeName; a DaemonSet; a namespace of no team
        attacker.create_pod(pod("other", gpus=10, nodeName="node-0", schedulerName="other"))
        attacker.create_pod(pod("direct", gpus=10, nodeName="node-1"))
        wait_for(cluster, lambda: tier(cluster, mine, "direct"), what="both have a tier")
        assert (tier(cluster, mine, "other"), tier(cluster, mine, "direct")) == ("guaranteed", "guaranteed")
        assert attacker.create(daemon_set("node-2", gpus=10)).returncode == 0
        attacker.create_pod(pod("more", gpus=10, nodeName="node-3", schedulerName="other"))
        drifter.create_pod(pod("stray", gpus=10, nodeName="node-4"))
        (daemon,) = wait_for(
            cluster, lambda: list_pods(cluster, mine, labelSelector="app=d"), what="the pod of the DaemonSet"
        )
        borrowers = [(mine, "more"), (mine, daemon["metadata"]["name"]), (stray, "stray")]
        for where, name in borrowers:
            wait_for(cluster, lambda where=where, name=name: tier(cluster, where, name), what=f"{name} has a tier")
            assert tier(cluster, where, name) == "preemptible"
        for number, node in enumerate(("node-2", "node-4")):
            ask(cluster, theirs, f"b{number}", gpus=10, **on(node))
        wait_bound(cluster, theirs, "b0", "b1")
        assert {"more", "other", "direct"} <= set(alive(cluster, mine))
        assert alive(cluster, stray) == []


def test_neither_budgets_nor_grace_periods_nor_gangs_keep_borrowed_gpus(cluster):
    make_nodes(cluster, 3)
    policy = "reclaim: {budgets: 2s}"
    with serve_fairgate(cluster, limit_a=60, limit_b=40, policy=policy) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, mine)
        # two budgets that allow no eviction
        for name in ("one", "two"):
            budget(attacker, name, {"app": "kept"})
        kept = fill(cluster, mine, 2, prefix="kept", gpus=5, labels={**BORROW, "app": "kept"}, **on("node-0"))
        # deleted, with a grace period of a year
        (dying,) = fill(cluster, mine, 1, prefix="d", gpus=10, labels=BORROW, annotations=STUBBORN, **on("node-1"))
        attacker.kubectl("delete", "pod", dying, f"--grace-period={YEAR}", "--wait=false")
        # a gang label on everything, one of them guaranteed
        gang = {"training.kubeflow.org/job-name": "g"}
        (shield,) = fill(cluster, mine, 1, prefix="shield", gpus=4, labels=gang, **on("node-2"))
        gangers = fill(cluster, mine, 2, prefix="gang", gpus=3, labels={**BORROW, **gang}, **on("node-2"))
        for number in range(3):
            ask(cluster, theirs, f"b{number}", **on(f"node-{number}"))
        wait_bound(cluster, theirs, "b0", "b2")
        assert len(evicted(cluster, mine, kept)) == 1
        assert [line["is_deleted"] for line in running.said("evicted") if line["name"] in kept] == [True]
        assert len(evicted(cluster, mine, gangers)) == 1
        assert evicted(cluster, mine, [shield]) == []
        left = wait_for(
            cluster,
            lambda: (found := get_pod(cluster, mine, dying)["metadata"]["deletionGracePeriodSeconds"]) < YEAR and found,
            what="the year is cut",
        )
        assert left <= 600
        attacker.kubectl("delete", "pod", dying, "--force", "--grace-period=0")
        wait_bound(cluster, theirs, "b1")


@pytest.mark.parametrize("by", ["name", "label"])
def test_anti_affinity_to_another_teams_namespace_shields_no_borrowed_gpus(cluster, by):
    """kube-scheduler finds free GPUs on the node, and pods that keep the owner's off it."""
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40) as fairgate:
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, mine)
        label = {"matchLabels": {"kubernetes.io/metadata.name": theirs}}
        named = {"namespaces": [theirs]} if by == "name" else {"namespaceSelector": label}
        from_them = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, **named}
        shield = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [from_them]}}
        for name, affinity in (("shield", shield), ("other", None)):
            attacker.create_pod(pod(name, gpus=3, labels=BORROW, affinity=affinity))
            wait_bound(cluster, mine, name)
        ask(cluster, theirs, "owner", gpus=4)
        message = wait_unschedulable(cluster, theirs, "owner")
        assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in message
        with evictor(fairgate):
            wait_for(cluster, lambda: alive(cluster, mine) == ["other"], what="what stood in its way is evicted")
            # kube-scheduler's hint reads no labels of namespaces: by itself it would try again in five minutes
            wait_bound(cluster, theirs, "owner", timeout=60)
        assert alive(cluster, mine) == ["other"], "no more than what stood in its way"


def test_requests_to_stay_are_a_preference_and_shield_no_borrowed_gpus(cluster):
    """Annotations for other products: such pods go after those that lose as much, and go if nothing else frees room."""
    make_nodes(cluster, 1, gpus=4)
    with serve_fairgate(cluster, limit_a=60, limit_b=40) as fairgate, evictor(fairgate):
        mine, theirs = fairgate.team_a, fairgate.team_b
        stays = fill(cluster, mine, 2, prefix="stays", labels=BORROW, annotations=STAY)
        plain = fill(cluster, mine, 2, prefix="plain", labels=BORROW)
        ask(cluster, theirs, "b0", gpus=2)
        wait_bound(cluster, theirs, "b0")
        assert (evicted(cluster, mine, stays), evicted(cluster, mine, plain)) == ([], plain)
        ask(cluster, theirs, "b1", gpus=2)
        wait_bound(cluster, theirs, "b1")
        assert evicted(cluster, mine, stays) == stays


def test_gang_labels_on_running_pods_send_no_eviction_to_others(cluster):
    make_nodes(cluster, 2)
    honest = make_namespace(cluster)
    with (
        serve_fairgate(cluster, limit_a=60, limit_b=40, policy="defaults: {unknownTeam: preemptible}") as fairgate,
        evictor(fairgate),
    ):
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, mine)
        older = fill(cluster, honest, 5, prefix="honest", gpus=2, **on("node-0"))
        time.sleep(1.1)  # times of pods are whole seconds
        own = fill(cluster, mine, 10, prefix="own", labels=BORROW, **on("node-1"))
        for number, name in enumerate(own):
            done = attacker.kubectl("label", "pod", name, f"ray.io/cluster=pair-{number // 2}")
            assert done.returncode == 0, done.stderr
        ask(cluster, theirs, "b", gpus=1)
        wait_bound(cluster, theirs, "b")
        assert evicted(cluster, honest, older) == []
        assert len(evicted(cluster, mine, own)) == 1


def test_no_eviction_is_for_a_pod_that_does_not_wait_or_cannot_be_placed(cluster):
    make_nodes(cluster, 2)
    with serve_fairgate(cluster, limit_a=60, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker, careless = make_attacker(cluster, mine), make_attacker(cluster, theirs, "eve")
        slow = {"annotations": STUBBORN, "terminationGracePeriodSeconds": 6}
        there = fill(cluster, mine, 5, gpus=2, labels=BORROW, **slow, **on("node-0"))
        # a pod that can never start, older than one that can
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}
        careless.create_pod(pod("broken", gpus=4, volumes=[volume], **on("node-0")))
        ask(cluster, theirs, "b", gpus=4, **on("node-0"))
        wait_for(cluster, lambda: held_nodes(cluster), what="the hold")
        # the same by nodeName
        direct = pod("direct", gpus=2, nodeName="node-0")
        wait_for(
            cluster,
            lambda: "(HeldRoom)" in attacker.create(direct, "--dry-run=server").stderr,
            what="a held node is refused",
        )
        wait_bound(cluster, theirs, "b")
        assert len(evicted(cluster, mine, there)) == 2
        assert not running.said("hold given up")
        assert [line["name"] for line in running.said("plan")] == ["b"]
        # a gang of which half could be placed, its pods created some time apart
        fill(cluster, mine, 2, prefix="own", gpus=3, **on("node-1"))
        others = fill(cluster, mine, 2, prefix="borrowed", gpus=2, labels=BORROW, **on("node-1"))
        gang = {"training.kubeflow.org/job-name": "late"}
        for name in ("late0", "late1"):
            ask(cluster, theirs, name, gpus=4, labels=gang, **on("node-1"))
            time.sleep(0.3)
        causes = wait_for(cluster, lambda: _causes(running, "late0", "late1"), what="both are refused")
        assert causes == {"late0": "GangIncomplete", "late1": "NotEnoughVictims"}
        assert evicted(cluster, mine, others) == []


@pytest.mark.parametrize(
    ("crowd", "priority"), [(6, ""), (40, "high")], ids=["six of the same priority", "forty of a higher one"]
)
def test_waiting_pods_that_tolerate_everything_cannot_use_held_nodes(cluster, crowd, priority):
    """Neither its GPUs, by pods that wait longer, nor its CPU, by pods without GPUs.

    The evictor sets no `nominatedNodeName`, which is kube-scheduler's own: taint and guard alone keep the room.
    """
    make_nodes(cluster, 1)
    more = {"tolerations": EVERYTHING}
    if priority:
        body = {"metadata": {"name": priority}, "value": 1000, "preemptionPolicy": "Never"}
        cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        more["priorityClassName"] = priority
    with serve_fairgate(cluster, limit_a=60, limit_b=40) as fairgate, evictor(fairgate) as running:
        mine, theirs = fairgate.team_a, fairgate.team_b
        attacker = make_attacker(cluster, mine)
        there = fill(cluster, mine, 10, labels=BORROW, cpu="6")
        thieves = [f"thief{number}" for number in range(crowd)]
        for name in thieves:
            attacker.create_pod(pod(name, gpus=1, cpu="1", memory="4Gi", labels=BORROW, **more))
        idle = [f"idle{number}" for number in range(4)]
        for name in idle:
            attacker.create_pod(pod(name, cpu="5", memory="1Gi", **more))
        ask(cluster, theirs, "b", gpus=4)
        wait_bound(cluster, theirs, "b")
        assert len(evicted(cluster, mine, there)) == 4
        assert set(thieves) <= set(alive(cluster, mine))
        assert len(running.said("plan")) == 1
        assert not running.said("hold given up")
        assert not [line for line in running.said("library") if "not locked" in line["message"]]


def test_pods_that_come_and_go_cause_fewer_and_fewer_evictions(cluster):
    """Creating and deleting a guaranteed pod repeatedly must not evict borrowers."""
    make_nodes(cluster, 1)
    with serve_fairgate(cluster, limit_a=40, limit_b=40) as fairgate, evictor(fairgate) as running:
        attacker = make_attacker(cluster, fairgate.team_b, "eve")
        fill(cluster, fairgate.team_a, 10, labels=BORROW)
        for number in range(40):
            if running.said("reclaim paused"):
                break
            attacker.create_pod(pod(f"b{number}", gpus=1, cpu="1", memory="4Gi"))
            wait_bound(cluster, fairgate.team_b, f"b{number}")
            attacker.kubectl("delete", "pod", f"b{number}", "--force", "--grace-period=0")
            create_pod(cluster, fairgate.team_a, pod(f"again{number}", gpus=1, cpu="1", memory="4Gi", labels=BORROW))
            wait_bound(cluster, fairgate.team_a, f"again{number}")
        paused = running.said("reclaim paused")[0]
        assert (paused["team"], round(paused["seconds"])) == ("b", 5)
        ask(cluster, fairgate.team_b, "last")
        wait_bound(cluster, fairgate.team_b, "last")
        assert (datetime.now(UTC) - datetime.fromisoformat(paused["time"])).total_seconds() > 4.5


def _causes(running, *names):
    found = {line["name"]: line["cause"] for line in running.said("no plan") if line["name"] in names}
    return found if len(found) == len(names) else None
