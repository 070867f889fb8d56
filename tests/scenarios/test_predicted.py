"""What expansion predicts for a manifest is what its real operator does: pods, demand, tiers, refusals.

And where its pods wait in line they start whole.
"""

import pytest

from tests.control_plane.versions import KUBERAY, LWS, TRAINING_OPERATOR
from tests.control_plane.workbench import list_pods, make_nodes, wait_for
from tests.scenarios.manifests import (
    job_set,
    leader_worker_set,
    mpi_job,
    paddle_job,
    pytorch_job,
    ray_cluster,
    tf_job,
    train_job,
    xgboost_job,
)
from tests.scenarios.predicted import assert_examples_as_predicted, assert_predicted
from tests.scenarios.standing_fairgate import serve_fairgate
from tests.scenarios.whole_gangs import assert_starts_whole
from webhook.kube.kinds.kind_row import Related

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("kuberay")
def test_of_a_raycluster(cluster):
    assert_predicted(cluster, ray_cluster("small", workers=3, gpus=2), ray_cluster("large", workers=15, gpus=2))


@pytest.mark.usefixtures("training_operator")
def test_of_a_pytorchjob(cluster):
    assert_predicted(cluster, pytorch_job("small"), pytorch_job("large", workers=14, gpus=2))


@pytest.mark.usefixtures("jobset")
def test_of_a_jobset(cluster):
    assert_predicted(cluster, job_set("small"), job_set("large", replicas=3, pods=5, gpus=2))


@pytest.mark.usefixtures("trainer")
def test_of_a_trainjob(cluster):
    related = Related.of([cluster.kubectl.json("get", "clustertrainingruntime", "torch-distributed")])
    small, large = train_job("small", nodes=3, gpus=2), train_job("large", nodes=15, gpus=2)
    assert_predicted(cluster, small, large, related=related)


@pytest.mark.usefixtures("lws")
def test_of_a_leaderworkerset(cluster):
    small = leader_worker_set("small", replicas=2, size=3, gpus=1)
    assert_predicted(cluster, small, leader_worker_set("large", replicas=5, size=3, gpus=2))


@pytest.mark.usefixtures("kuberay")
def test_of_kuberays_examples(cluster):
    assert_examples_as_predicted(
        cluster,
        KUBERAY,
        "config/samples/ray-cluster.complete.yaml",
        "config/samples/ray-cluster.tpu-v4-multihost.yaml",
        "config/samples/ray-service.llm-serve.yaml",
    )


@pytest.mark.usefixtures("training_operator")
def test_of_the_training_operators_examples(cluster):
    assert_examples_as_predicted(
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
    assert_examples_as_predicted(
        cluster, LWS, "docs/examples/sglang/lws.yaml", "config/samples/leaderworkerset_multi_template.yaml"
    )


@pytest.mark.usefixtures("kuberay")
def test_a_raycluster_in_line_starts_whole(cluster):
    assert_starts_whole(cluster, ray_cluster("ray", workers=4, gpus=4))


@pytest.mark.usefixtures("training_operator")
def test_jobs_of_the_training_operator_in_line_start_whole(cluster):
    mpi = mpi_job("mpi", workers=4, gpus=4) | {"apiVersion": "kubeflow.org/v1"}
    xgboost, paddle = xgboost_job("xgb", workers=3, gpus=4), paddle_job("paddle", workers=4, gpus=4)
    assert_starts_whole(cluster, pytorch_job("torch", gpus=4), tf_job("tf", workers=4, gpus=4), mpi, xgboost, paddle)


@pytest.mark.usefixtures("jobset")
def test_a_jobset_in_line_starts_whole(cluster):
    assert_starts_whole(cluster, job_set("set", gpus=4))


@pytest.mark.usefixtures("jobset")
def test_room_is_kept_for_the_jobs_of_a_jobset_that_follow(cluster):
    in_order = job_set("ordered", gpus=4)
    in_order["spec"] |= {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    (trial,) = in_order["spec"]["replicatedJobs"]
    in_order["spec"]["replicatedJobs"] = [trial | {"name": name, "replicas": 1} for name in ("one", "two")]
    assert_starts_whole(cluster, in_order, first=2)


@pytest.mark.usefixtures("jobset")
def test_jobs_of_a_jobset_with_exclusive_placement_start_by_their_leaders(cluster):
    """JobSet's webhook refuses the other pods of a Job until the first has a node."""
    for rack in ("x", "y"):
        make_nodes(cluster, 2, prefix=f"pool-{rack}", gpus=8, labels={"example.com/pool": rack})
    with serve_fairgate(cluster, policy="defaults: {onLimit: queue, onNoRoom: queue}\n") as fairgate:
        made = job_set("slices", replicas=2, pods=2, gpus=4)
        made["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "example.com/pool"}
        cluster.kubectl.apply([made], "-n", fairgate.team_a)

        def racks():
            nodes = [each["spec"].get("nodeName", "") for each in list_pods(cluster, fairgate.team_a)]
            return sorted(node.rpartition("-")[0] for node in nodes)

        want = ["pool-x", "pool-x", "pool-y", "pool-y"]
        wait_for(cluster, lambda: racks() == want, what="each Job in a pool of its own")
        assert fairgate.charged("a") == 16
        wait_for(cluster, lambda: not fairgate.ledger("a")["ledger"]["inFlight"], what="nothing stays in flight")


@pytest.mark.usefixtures("trainer")
def test_a_trainjob_in_line_starts_whole(cluster):
    assert_starts_whole(cluster, train_job("train", nodes=4, gpus=4))


@pytest.mark.usefixtures("lws")
def test_a_group_of_a_leaderworkerset_in_line_starts_whole(cluster):
    assert_starts_whole(cluster, leader_worker_set("llm", replicas=1, size=4, gpus=4))


@pytest.mark.usefixtures("lws")
def test_room_is_kept_for_workers_that_are_made_once_their_leader_runs(cluster):
    follows = leader_worker_set("llm", replicas=1, size=4, gpus=4)
    follows["spec"]["startupPolicy"] = "LeaderReady"
    assert_starts_whole(cluster, follows, first=1)
