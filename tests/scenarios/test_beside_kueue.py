"""Beside Kueue, which is built from its module: what it admits is counted and placed, and waits for nothing else."""

import pytest

from tests.control_plane.cleanup import ADMISSION
from tests.control_plane.kubectl import manifest
from tests.control_plane.objects import job, pod
from tests.control_plane.workbench import create_pod, get_pod, list_pods, make_nodes, wait_bound, wait_for
from tests.scenarios.evictor import evictor
from tests.scenarios.kueue import API, QUEUED, bound_pods, queue, wait_charged
from tests.scenarios.standing_fairgate import serve_fairgate

pytestmark = [pytest.mark.cluster, pytest.mark.standing, pytest.mark.usefixtures("kueue")]

SIZE = {"cpu": "1", "memory": "1Gi"}
GATES = ["fairgate.dev/queue", "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]
"""Fairgate's and Kueue's, on a pod that waits for Kueue."""
QUEUES = "defaults: {onLimit: queue, onNoRoom: queue}"
HOSTNAME = "kubernetes.io/hostname"


def gates(found):
    return sorted(each["name"] for each in found["spec"].get("schedulingGates", ()))


def queued_job(name, *, pods, gpus, labels=None, annotations=None):
    """A Job that waits for Kueue; labels are its own, annotations those of its pods."""
    made = job(name, pods=pods, gpus=gpus, annotations=annotations, terminationGracePeriodSeconds=1, **SIZE)
    made["metadata"]["labels"] = QUEUED | (labels or {})
    return made


@pytest.mark.parametrize("policy", ["", QUEUES], ids=["pods over a limit are refused", "pods over a limit wait"])
def test_a_pod_waits_for_kueue_uncharged_and_starts_when_kueue_admits_it(cluster, policy):
    make_nodes(cluster, 2, gpus=8)
    with serve_fairgate(cluster, policy=policy) as fairgate, queue(cluster, fairgate.team_a, gpus=4):
        mine = fairgate.team_a
        asks = {"gpus": 4, "labels": QUEUED, "terminationGracePeriodSeconds": 1, **SIZE}
        create_pod(cluster, mine, pod("first", **asks))
        wait_bound(cluster, mine, "first")
        create_pod(cluster, mine, pod("second", **asks))
        waits = get_pod(cluster, mine, "second")
        assert gates(waits) == GATES
        text = waits["metadata"]["annotations"]["fairgate.dev/waiting"]
        assert "of another controller" in text
        assert "kueue.x-k8s.io/admission" in text
        wait_charged(fairgate, 4)
        cluster.kubectl("delete", "pod", "first", "-n", mine, "--wait=false")
        wait_bound(cluster, mine, "second")
        assert gates(get_pod(cluster, mine, "second")) == []
        wait_charged(fairgate, 4)


def test_kueue_hashes_a_pod_before_fairgate_changes_it_and_a_group_starts_whole(cluster):
    """Its webhooks come first by their name, so pods of one shape are one role, whatever nodes they get."""
    make_nodes(cluster, 3, gpus=4)
    with serve_fairgate(cluster) as fairgate, queue(cluster, fairgate.team_a, gpus=12):
        mine = fairgate.team_a
        found = cluster.api.list(f"{ADMISSION}/mutatingwebhookconfigurations")
        assert sorted(each["metadata"]["name"] for each in found)[-1] == "zz-fairgate"
        group = {"labels": QUEUED | {"kueue.x-k8s.io/pod-group-name": "g"}}
        group["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "3"}
        for number in range(2):
            create_pod(cluster, mine, pod(f"g-{number}", gpus=4, **group, **SIZE))
        assert [gates(each) for each in list_pods(cluster, mine)] == [GATES] * 2
        create_pod(cluster, mine, pod("g-2", gpus=4, **group, **SIZE))
        bound = bound_pods(cluster, mine, 3)
        assert len({each["spec"]["nodeName"] for each in bound}) == 3
        assert len({each["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] for each in bound}) == 1
        (workload,) = cluster.api.list(f"/apis/{API}/namespaces/{mine}/workloads")
        assert [each["count"] for each in workload["spec"]["podSets"]] == [3]
        wait_charged(fairgate, 12)


def test_a_suspended_job_is_judged_at_creation_and_counted_once_kueue_starts_it(cluster):
    """Its pods get the nodes of Kueue's flavor, and of these the ones that Fairgate chooses."""
    make_nodes(cluster, 2, gpus=8, prefix="left", labels={"flavor": "left"})
    make_nodes(cluster, 2, gpus=8, prefix="right", labels={"flavor": "right"})
    flavor = {"nodeLabels": {"flavor": "right"}}
    with serve_fairgate(cluster) as fairgate, queue(cluster, fairgate.team_a, gpus=20, flavor=flavor):
        mine = fairgate.team_a
        wide = manifest(queued_job("wide", pods=6, gpus=4))
        done = cluster.kubectl.run("create", "-n", mine, "-f", "-", stdin=wide)
        assert "Job wide: needs 24 GPUs, team a's limit is 20" in done.stderr
        assert cluster.api.get(f"/apis/batch/v1/namespaces/{mine}/jobs/wide")["spec"]["suspend"] is True
        assert fairgate.charged("a") == 0
        cluster.kubectl("delete", "job", "wide", "-n", mine)
        cluster.kubectl.apply([queued_job("fits", pods=3, gpus=4)], "-n", mine)
        bound = bound_pods(cluster, mine, 3)
        assert {each["spec"]["nodeName"] for each in bound} <= {"right-0", "right-1"}
        assert {each["spec"]["nodeSelector"]["flavor"] for each in bound} == {"right"}
        wait_charged(fairgate, 12)


def test_kueues_topology_and_fairgates_nodes_do_not_contradict_each_other(cluster):
    """Its ungater names the host of each pod while Fairgate's gate still holds it."""
    make_nodes(cluster, 3, gpus=8, labels={"pool": "tas"})
    topology = {"apiVersion": API, "kind": "Topology", "metadata": {"name": "hosts"}}
    topology["spec"] = {"levels": [{"nodeLabel": HOSTNAME}]}
    cluster.kubectl.apply([topology])
    flavor = {"nodeLabels": {"pool": "tas"}, "topologyName": "hosts"}
    with serve_fairgate(cluster) as fairgate, queue(cluster, fairgate.team_a, gpus=20, flavor=flavor):
        create_pod(cluster, fairgate.team_b, pod("other", gpus=5, **SIZE))
        taken = wait_bound(cluster, fairgate.team_b, "other")
        asks = {"kueue.x-k8s.io/podset-required-topology": HOSTNAME}
        cluster.kubectl.apply([queued_job("near", pods=2, gpus=4, annotations=asks)], "-n", fairgate.team_a)
        bound = bound_pods(cluster, fairgate.team_a, 2)
        (node,) = {each["spec"]["nodeName"] for each in bound}
        assert node != taken
        assert {each["spec"]["nodeSelector"][HOSTNAME] for each in bound} == {node}
        wait_charged(fairgate, 8)


def test_kueues_preemption_frees_charges_and_nothing_is_evicted_besides(cluster):
    make_nodes(cluster, 2, gpus=8)
    high = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    cluster.kubectl.apply([high])
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    with (
        serve_fairgate(cluster) as fairgate,
        evictor(fairgate) as running,
        queue(cluster, fairgate.team_a, gpus=8, **preempts),
    ):
        mine = fairgate.team_a
        cluster.kubectl.apply([queued_job("low", pods=2, gpus=4)], "-n", mine)
        bound_pods(cluster, mine, 2)
        urgent = queued_job("urgent", pods=2, gpus=4, labels={"kueue.x-k8s.io/priority-class": "high"})
        cluster.kubectl.apply([urgent], "-n", mine)

        def only_urgent():
            names = {
                each["metadata"]["labels"]["batch.kubernetes.io/job-name"] for each in bound_pods(cluster, mine, 2)
            }
            assert names == {"urgent"}
            return True

        wait_for(cluster, only_urgent, what="the urgent Job runs instead")
        assert cluster.api.get(f"/apis/batch/v1/namespaces/{mine}/jobs/low")["spec"]["suspend"] is True
        wait_charged(fairgate, 8)
        assert running.said("plan") == []
