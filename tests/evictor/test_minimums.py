"""Replicas of services in an evictor's run: which go, and what their owners read; what a tenant may state."""

import pytest

from tests.evictor.support.stage import POOR

OLD, NEW = "2025-01-01T00:00:00Z", "2025-11-25T00:00:00Z"
SCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"


def replicas(stage, service, count, *, on, minimum=None, since=NEW):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{service}-5d", "uid": service, "controller": True}
    annotations = {} if minimum is None else {"fairgate.dev/minimum": str(minimum)}
    for number in range(count):
        stage.borrower(
            f"{service}{number}",
            on=on,
            created=since,
            gang={"pod-template-hash": "5d"},
            ownerReferences=[owner],
            annotations=annotations,
            status={"phase": "Running", "startTime": since},
        )


async def left_of(stage, need, *services):
    """How many replicas of each service are left once a pod has got its room."""
    before = len(stage.names())
    async with stage.leader(POOR):
        stage.asker("need", gpus=need)
        await stage.until(lambda: len(stage.names()) <= before + 1 - need)
    return [sum(name.startswith(service) for name in stage.names()) for service in services]


async def test_the_owner_reads_that_the_surplus_went_and_the_metric_counts_it(stage):
    stage.node("n0")
    replicas(stage, "web", 3, on="n0", minimum=1, since=OLD)
    stage.borrower("young", on="n0", created=NEW, status={"phase": "Running", "startTime": NEW})
    assert await left_of(stage, 1, "web", "young") == [2, 1]
    [text] = [event.message for event in stage.events if event.reason == "Reclaimed"]
    assert text.endswith("; replicas ready: 3, minimum: 1; 2 may be evicted first")
    [sample] = [
        each
        for family in stage.metrics.registry.collect()
        for each in family.samples
        if each.name == "fairgate_reclaim_surplus_victims_total"
    ]
    assert (sample.labels, sample.value) == ({"team": "team-a"}, 1)


async def test_an_autoscaler_says_what_stays(stage):
    stage.node("n0")
    replicas(stage, "web", 2, on="n0")
    replicas(stage, "chat", 2, on="n0")
    for name in ("web", "chat"):
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": name}, "minReplicas": 1}
        stage.api.put(SCALERS, name, namespace="team-a", spec=spec)
    assert await left_of(stage, 2, "web", "chat") == [1, 1]


@pytest.mark.parametrize("minimum", [4, 10_000, -1, "all"])
async def test_a_minimum_without_a_surplus_sends_no_eviction_to_older_pods_of_others(stage, minimum):
    for name in ("n0", "n1"):
        stage.node(name)
    replicas(stage, "forged", 4, on="n0", minimum=minimum)
    for number in range(4):
        stage.borrower(f"honest{number}", on="n1", created=OLD, status={"phase": "Running", "startTime": OLD})
    assert await left_of(stage, 2, "honest", "forged") == [4, 2]


async def test_one_replica_each_with_a_minimum_of_one_sends_none_either(stage):
    for name in ("n0", "n1"):
        stage.node(name)
    for number in range(4):
        replicas(stage, f"forged{number}-", 1, on="n0", minimum=1)
        stage.borrower(f"honest{number}", on="n1", created=OLD, status={"phase": "Running", "startTime": OLD})
    assert await left_of(stage, 2, "honest", "forged") == [4, 2]


@pytest.mark.parametrize(("need", "left"), [(1, 3), (2, 2), (3, 0)])
async def test_an_elastic_job_loses_single_workers_down_to_its_minimum_and_goes_whole_below_it(stage, need, left):
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "t", "controller": True}
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": "worker"}
    stage.node("n0")
    for number in range(4):
        stage.borrower(
            f"worker{number}",
            on="n0",
            gang=labels,
            ownerReferences=[owner],
            annotations={"fairgate.dev/minimum": "2"},
            status={"phase": "Running", "startTime": OLD},
        )
    async with stage.leader(POOR):
        stage.asker("need", gpus=need)
        await stage.until(lambda: len(stage.names()) == left + 1)
