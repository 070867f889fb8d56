"""What is foretold of a manifest is what its real operator does: pods, demand, tiers, refusals."""

import pytest

from tests.scenarios.foretold import assert_foretold
from tests.scenarios.manifests import job_set, leader_worker_set, pytorch_job, ray_cluster, train_job
from webhook.kube.workloads.related import Related

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("kuberay")
def test_of_a_raycluster(cluster):
    assert_foretold(cluster, ray_cluster("small", workers=3, gpus=2), ray_cluster("large", workers=15, gpus=2))


@pytest.mark.usefixtures("training_operator")
def test_of_a_pytorchjob(cluster):
    assert_foretold(cluster, pytorch_job("small"), pytorch_job("large", workers=14, gpus=2))


@pytest.mark.usefixtures("jobset")
def test_of_a_jobset(cluster):
    assert_foretold(cluster, job_set("small"), job_set("large", replicas=3, pods=5, gpus=2))


@pytest.mark.usefixtures("trainer")
def test_of_a_trainjob(cluster):
    related = Related.of([cluster.kubectl.json("get", "clustertrainingruntime", "torch-distributed")])
    small, large = train_job("small", nodes=3, gpus=2), train_job("large", nodes=15, gpus=2)
    assert_foretold(cluster, small, large, related=related)


@pytest.mark.usefixtures("lws")
def test_of_a_leaderworkerset(cluster):
    small = leader_worker_set("small", replicas=2, size=3, gpus=1)
    assert_foretold(cluster, small, leader_worker_set("large", replicas=5, size=3, gpus=2))
