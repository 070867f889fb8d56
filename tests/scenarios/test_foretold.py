"""What is foretold of a manifest is what its real operator does: pods, demand, tiers, refusals."""

import pytest

from tests.control_plane.versions import KUBERAY, LWS, TRAINING_OPERATOR
from tests.scenarios.foretold import assert_examples_as_foretold, assert_foretold
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


@pytest.mark.usefixtures("kuberay")
def test_of_kuberays_examples(cluster):
    assert_examples_as_foretold(
        cluster,
        KUBERAY,
        "config/samples/ray-cluster.complete.yaml",
        "config/samples/ray-cluster.tpu-v4-multihost.yaml",
        "config/samples/ray-service.llm-serve.yaml",
    )


@pytest.mark.usefixtures("training_operator")
def test_of_the_training_operators_examples(cluster):
    assert_examples_as_foretold(
        cluster,
        TRAINING_OPERATOR,
        "examples/pytorch/mnist/v1/pytorch_job_mnist_nccl.yaml",
        "examples/tensorflow/distribution_strategy/keras-API/multi_worker_tfjob.yaml",
        "examples/paddlepaddle/simple-gpu.yaml",
        "examples/xgboost/xgboostjob.yaml",
        "examples/mpi/tensorflow-mnist.yaml",
    )


@pytest.mark.usefixtures("lws")
def test_of_leaderworkersets_examples(cluster):
    assert_examples_as_foretold(
        cluster, LWS, "docs/examples/sglang/lws.yaml", "config/samples/leaderworkerset_multi_template.yaml"
    )
