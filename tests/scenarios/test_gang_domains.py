"""Gangs in one domain: racks by a label of the nodes, with the stock kube-scheduler."""

import json

import pytest

from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_for
from tests.scenarios.evictor import evicted, evictor, fill, wait_bound
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing]

SIZE = {"cpu": "1", "memory": "1Gi"}
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}\n"
WAITING = "fairgate.dev/waiting"
RACK = "example.com/rack"
ONE_RACK = {"fairgate.dev/topology": RACK}


def make_racks(cluster, **sizes):
    """Racks of nodes with ten GPUs each."""
    for rack, count in sizes.items():
        make_nodes(cluster, count, prefix=rack, labels={RACK: rack})


def member(name, *, size, gpus, gang="g", topology=RACK):
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(size), "fairgate.dev/topology": topology}
    return pod(name, gpus=gpus, labels={"kueue.x-k8s.io/pod-group-name": gang}, annotations=annotations, **SIZE)


def racks_of(cluster, namespace):
    """The racks of a namespace's pods, by pod; "" for one that is on no node. Nodes are named by their rack."""
    nodes = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in list_pods(cluster, namespace)}
    return {name: node.rpartition("-")[0] for name, node in nodes.items()}


def in_one_rack(cluster, namespace, rack, count):
    return list(racks_of(cluster, namespace).values()) == [rack] * count


def decision(cluster, namespace, name):
    return json.loads(get_pod(cluster, namespace, name)["metadata"]["annotations"]["fairgate.dev/decision"])


def test_a_gang_of_64_is_bound_in_the_smallest_of_three_racks_that_holds_it(cluster):
    make_racks(cluster, large=9, middle=7, small=5)
    with serve_fairgate(cluster, limit_a=80) as fairgate:  # no team has a queue: the annotation is enough
        train = job("train", pods=64, gpus=1, annotations=ONE_RACK, **SIZE)
        cluster.kubectl.apply([train], "-n", fairgate.team_a)
        wait_for(
            cluster,
            lambda: in_one_rack(cluster, fairgate.team_a, "middle", 64),
            what="all 64 in rack middle",
            timeout=120,
        )
        found = [decision(cluster, fairgate.team_a, name) for name in racks_of(cluster, fairgate.team_a)]
        assert {each["domain"] for each in found} == {f"{RACK}=middle"}
        chosen = (
            "has room for 70 of these pods, 64 start together; of 2 domains that have, it leaves the least; "
            "too small: small 50"
        )
        # A pod that is released again after a conflict follows those that are charged.
        assert {chosen} <= {each["why"] for each in found} <= {chosen, "charged there"}
        listed = {
            name
            for each in list_pods(cluster, fairgate.team_a)
            for term in each["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
            for field in term["matchFields"]
            for name in field["values"]
        }
        assert {name.rpartition("-")[0] for name in listed} == {"middle"}


def test_a_gang_waits_for_a_rack_while_free_gpus_are_scattered(cluster):
    make_racks(cluster, a=2, b=2)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        mine, theirs = fairgate.team_a, fairgate.team_b
        for node in ("a-0", "a-1", "b-0", "b-1"):
            holder = pod(f"on-{node}", gpus=5, nodeSelector={"kubernetes.io/hostname": node}, **SIZE)
            create_pod(cluster, theirs, holder)
        wait_bound(cluster, theirs, *(f"on-{node}" for node in ("a-0", "a-1", "b-0", "b-1")))
        for number in range(4):  # four times five GPUs: as many as are free, two in each rack
            create_pod(cluster, mine, member(f"m-{number}", size=4, gpus=5))
        want = f"waits: gang g starts whole, with 4 pods in one {RACK}; the best of 2 has room for 2 of them now"
        wait_for(
            cluster,
            lambda: [each["metadata"]["annotations"][WAITING] for each in list_pods(cluster, mine)] == [want] * 4,
            what="the reason",
        )
        assert fairgate.charged("a") == 0
        cluster.kubectl("delete", "pod", "on-a-0", "on-b-0", "-n", theirs, "--wait=true")
        wait_for(cluster, lambda: fairgate.charged("b") == 10, what="two holders are gone")
        assert set(racks_of(cluster, mine).values()) == {""}, "three of four have room in each rack"
        cluster.kubectl("delete", "pod", "on-b-1", "-n", theirs, "--wait=true")
        wait_for(cluster, lambda: in_one_rack(cluster, mine, "b", 4), what="all four in rack b")


def test_room_is_reclaimed_in_one_rack(cluster):
    make_racks(cluster, a=2, b=2, c=2)
    with serve_fairgate(cluster, limit_a=60, policy=QUEUES) as fairgate, evictor(fairgate):
        mine, theirs = fairgate.team_a, fairgate.team_b
        names = fill(cluster, mine, 20, prefix="own", nodeSelector={RACK: "a"})  # guaranteed
        names += fill(cluster, mine, 40)
        before = racks_of(cluster, mine)
        for number in range(2):
            create_pod(cluster, theirs, member(f"m-{number}", size=2, gpus=10))
        wait_bound(cluster, theirs, "m-0", "m-1", timeout=90)
        (rack,) = set(racks_of(cluster, theirs).values())
        gone = evicted(cluster, mine, names)
        assert len(gone) == 20
        assert {before[name] for name in gone} == {rack}
        assert decision(cluster, theirs, "m-0")["why"] == "20 GPUs were reserved there for 2 pods that start together"


def test_the_annotation_may_change_while_the_gang_waits_and_no_longer_moves_it_afterwards(cluster):
    make_racks(cluster, a=2, b=2)
    with serve_fairgate(cluster, policy=QUEUES) as fairgate:
        mine = fairgate.team_a
        for number in range(3):
            create_pod(cluster, mine, member(f"m-{number}", size=4, gpus=4))
        cluster.kubectl(
            "annotate", "--overwrite", "pods", "--all", "-n", mine, "fairgate.dev/topology=" + "x" * 100_000
        )
        create_pod(cluster, mine, member("m-3", size=4, gpus=4, topology="preferred=no.such/label"))
        wait_for(cluster, lambda: "" not in racks_of(cluster, mine).values(), what="placed without a domain")
        before = racks_of(cluster, mine)
        cluster.kubectl("annotate", "--overwrite", "pods", "--all", "-n", mine, f"fairgate.dev/topology={RACK}")
        create_pod(cluster, mine, member("late", size=4, gpus=1))
        wait_bound(cluster, mine, "late")
        racks = racks_of(cluster, mine)
        assert {name: rack for name, rack in racks.items() if name != "late"} == before
        assert racks["late"] in set(before.values())


def test_the_domain_that_a_job_asks_for_reaches_its_pods(cluster):
    make_racks(cluster, a=1, b=2)
    with serve_fairgate(cluster) as fairgate:
        train = job("train", pods=3, gpus=4, **SIZE)
        train["metadata"]["annotations"] = ONE_RACK
        cluster.kubectl.apply([train], "-n", fairgate.team_a)
        wait_for(cluster, lambda: in_one_rack(cluster, fairgate.team_a, "b", 3), what="all three in rack b")


def test_a_rack_that_no_node_is_in_is_refused_at_once(cluster):
    make_racks(cluster, a=1)
    with serve_fairgate(cluster) as fairgate:
        asked = json.dumps(member("m", size=2, gpus=1, topology="no.such/label"))
        done = cluster.kubectl.run("create", "--dry-run=server", "-f", "-", "-n", fairgate.team_a, stdin=asked)
        assert "requires one no.such/label for 1 pod, and no node that it may use has this label" in done.stderr
        asked = json.dumps(member("m", size=2, gpus=1, topology="one rack, please"))
        done = cluster.kubectl.run("create", "--dry-run=server", "-f", "-", "-n", fairgate.team_a, stdin=asked)
        assert "annotation fairgate.dev/topology 'one rack, please' is ignored: write KEY, required=KEY" in done.stderr
        assert done.returncode == 0
