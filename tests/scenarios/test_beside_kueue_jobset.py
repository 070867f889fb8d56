"""A JobSet beside Kueue, both built from their modules."""

import pytest

from tests.control_plane.objects import pod_spec
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.kueue import API, QUEUED, bound_pods, queue, wait_charged
from tests.scenarios.standing_fairgate import serve_fairgate

# in this order: Kueue looks for the kinds that it is to manage when it starts
pytestmark = [pytest.mark.cluster, pytest.mark.standing, pytest.mark.usefixtures("jobset", "kueue")]

SIZE = {"cpu": "1", "memory": "1Gi"}


def test_a_jobset_of_kueue_starts_whole_and_is_counted(cluster):
    make_nodes(cluster, 2, gpus=8)
    template = {"spec": pod_spec(gpus=2, restartPolicy="Never", **SIZE)}
    each = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "sweep", "labels": QUEUED},
        "spec": {"replicatedJobs": [{"name": "trial", "replicas": 2, "template": each}]},
    }
    with serve_fairgate(cluster) as fairgate, queue(cluster, fairgate.team_a, gpus=4):
        mine = fairgate.team_a
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{mine}/jobsets/sweep"
        cluster.kubectl.apply([made], "-n", mine)
        wait_for(cluster, lambda: cluster.api.list(f"/apis/{API}/namespaces/{mine}/workloads"), what="Kueue has it")
        assert cluster.api.get(path)["spec"]["suspend"] is True
        assert list_pods(cluster, mine) == []
        assert fairgate.charged("a") == 0
        cluster.kubectl("delete", "jobset", "sweep", "-n", mine)
        made["spec"]["replicatedJobs"][0]["replicas"] = 1
        cluster.kubectl.apply([made], "-n", mine)
        bound_pods(cluster, mine, 2)
        wait_charged(fairgate, 4)
