"""The gang of an object: how many pods start together, and which follow."""

from contextlib import suppress

import pytest

from tests import builders
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.constraints import MAX_MEMBERS
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.gang_size import UnknownSizeError, gang_plan


def template(gpus=1, **more):
    return {"spec": builders.pod(gpus=gpus)["spec"] | more}


def made(kind, api, spec, **more):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}


def plan_of(document):
    return gang_plan(document, kinds=kind_table(()), namespace="vision", weights=BUILT_IN_RESOURCES)


def shown(document):
    """The size, and the GPUs of each pod that follows."""
    plan = plan_of(document)
    return plan.size, [pod.demand.gpus // ONE_GPU for pod in plan.late]


def job(spec, **status):
    return made("Job", "batch/v1", {**spec, "template": template()}, status=status)


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param({"parallelism": 4, "completions": 4}, {}, 4, id="none has ended"),
        pytest.param({"parallelism": 4}, {}, 4, id="a work queue"),
        pytest.param({"parallelism": 4, "completions": 6}, {"succeeded": 4}, 2, id="the last wave is smaller"),
        pytest.param({"parallelism": 8, "completions": 3}, {}, 3, id="no more than are to complete"),
        pytest.param({"parallelism": 2, "completions": 2}, {"succeeded": 9}, 1, id="a status that cannot be"),
        pytest.param({}, {}, 1, id="the default"),
        pytest.param({"parallelism": 4, "completions": 4}, {"succeeded": "2"}, 4, id="a status that is no number"),
    ],
)
def test_a_job_has_as_many_as_it_runs_at_a_time_and_are_left(spec, status, want):
    assert shown(job(spec, **status)) == (want, [])


def kubeflow(kind, field, roles, **more):
    specs = {role: {"replicas": count, "template": template(gpus)} for role, (count, gpus) in roles.items()}
    spec = {field: specs, **{key: value for key, value in more.items() if key != "status"}}
    return made(kind, "kubeflow.org/v1", spec, status=more.get("status", {}))


@pytest.mark.parametrize(
    ("document", "want"),
    [
        (kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Master": (1, 1), "Worker": (3, 2)}), 4),
        (kubeflow("TFJob", "tfReplicaSpecs", {"Chief": (1, 1), "PS": (2, 0), "Worker": (3, 2)}), 4),
        (
            kubeflow(
                "PyTorchJob",
                "pytorchReplicaSpecs",
                {"Worker": (8, 1)},
                elasticPolicy={"minReplicas": 2, "maxReplicas": 16, "metrics": [{}]},
            ),
            2,
        ),
        (
            kubeflow(
                "XGBoostJob",
                "xgbReplicaSpecs",
                {"Master": (1, 0), "Worker": (4, 1)},
                runPolicy={"schedulingPolicy": {"minAvailable": 3}},
            ),
            2,
        ),
        (
            kubeflow(
                "PaddleJob",
                "paddleReplicaSpecs",
                {"Worker": (4, 1)},
                status={"replicaStatuses": {"Worker": {"succeeded": 1}}},
            ),
            3,
        ),
        (kubeflow("JAXJob", "jaxReplicaSpecs", {"Worker": (2, 8)}), 2),
        (kubeflow("MPIJob", "mpiReplicaSpecs", {"Launcher": (1, 0), "Worker": (3, 2)}), 3),
    ],
    ids=["PyTorchJob", "without GPUs", "elastic", "minAvailable", "one has ended", "JAXJob", "MPIJob"],
)
def test_a_kubeflow_job_has_its_roles_with_gpus(document, want):
    assert shown(document) == (want, [])


def test_the_launcher_of_an_mpijob_follows_where_it_waits_for_the_workers():
    roles = {"Launcher": (1, 1), "Worker": (2, 4)}
    at_once = kubeflow("MPIJob", "mpiReplicaSpecs", roles)
    assert shown(at_once) == (3, [])
    after = kubeflow("MPIJob", "mpiReplicaSpecs", roles, launcherCreationPolicy="WaitForWorkersReady")
    assert shown(after) == (2, [1])


def job_set(*jobs, status=(), **spec):
    entries = [
        {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"parallelism": 2, "completions": 2, "template": template(gpus)}},
            **({"dependsOn": [{"name": before, "status": how}]} if before else {}),
        }
        for name, replicas, gpus, before, how in jobs
    ]
    states = [{"name": name, "succeeded": count} for name, count in status]
    return made(
        "JobSet",
        "jobset.x-k8s.io/v1alpha2",
        {"replicatedJobs": entries, **spec},
        status={"replicatedJobsStatus": states},
    )


@pytest.mark.parametrize(
    ("document", "want"),
    [
        (job_set(("a", 2, 1, "", ""), ("b", 1, 4, "", "")), (6, [])),
        (
            job_set(("a", 1, 1, "", ""), ("b", 1, 4, "", ""), startupPolicy={"startupPolicyOrder": "InOrder"}),
            (2, [4] * 2),
        ),
        (job_set(("a", 1, 0, "", ""), ("b", 1, 4, "", ""), startupPolicy={"startupPolicyOrder": "InOrder"}), (2, [])),
        (job_set(("a", 1, 1, "", ""), ("b", 1, 4, "a", "Ready"), ("c", 1, 2, "b", "Ready")), (2, [4, 4, 2, 2])),
        (job_set(("a", 1, 1, "", ""), ("b", 1, 4, "a", "Complete")), (2, [])),
        (job_set(("init", 1, 0, "", ""), ("node", 2, 4, "init", "Complete")), (4, [])),
        (job_set(("a", 1, 1, "", ""), ("b", 2, 4, "a", "Complete"), status=[("a", 1), ("b", 1)]), (2, [])),
    ],
    ids=["at once", "in order", "the first without GPUs", "ready", "complete", "a TrainJob's", "one has ended"],
)
def test_jobs_of_a_jobset_start_together_or_follow_by_its_order(document, want):
    assert shown(document) == want


EXCLUSIVE, BY_SELECTOR = "alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector"


@pytest.mark.parametrize(
    ("of_set", "of_job", "want"),
    [
        ({EXCLUSIVE: "rack"}, {}, (3, [4, 4, 2])),
        ({}, {EXCLUSIVE: "rack"}, (4, [4, 4])),
        ({EXCLUSIVE: "rack", BY_SELECTOR: "true"}, {}, (6, [])),
        ({EXCLUSIVE: "rack"}, {BY_SELECTOR: "true"}, (5, [2])),
    ],
    ids=["of the JobSet", "of one replicated job", "by node selectors", "one by node selectors"],
)
def test_of_jobs_with_exclusive_placement_one_pod_each_starts_and_the_others_follow(of_set, of_job, want):
    document = job_set(("a", 2, 4, "", ""), ("b", 1, 2, "", ""))
    document["metadata"]["annotations"] = of_set
    document["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": of_job}
    assert shown(document) == want


def lws(**more):
    annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"} if more.pop("is_exclusive", False) else {}
    worker, leader = template(4), template(1)
    spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": leader, "workerTemplate": worker}}
    document = made("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec | more)
    document["metadata"]["annotations"] = annotations
    return document


def test_a_group_of_a_leader_worker_set_is_the_gang_and_its_workers_may_follow():
    assert shown(lws()) == (3, [])
    assert shown(lws(startupPolicy="LeaderCreated")) == (3, [])
    assert shown(lws(startupPolicy="LeaderReady")) == (1, [4, 4])
    assert shown(lws(is_exclusive=True)) == (1, [4, 4])


def ray(*, is_scaled=False, head=0):
    group = {
        "groupName": "g",
        "replicas": 4,
        "minReplicas": 1,
        "maxReplicas": 8,
        "numOfHosts": 2,
        "template": template(),
    }
    spec = {"headGroupSpec": {"template": template(head)}, "workerGroupSpecs": [group]}
    return made("RayCluster", "ray.io/v1", spec | ({"enableInTreeAutoscaling": True} if is_scaled else {}))


def test_an_autoscaled_ray_cluster_needs_its_least_workers_another_one_all():
    assert shown(ray()) == (8, [])
    assert shown(ray(head=1)) == (9, [])
    assert shown(ray(is_scaled=True)) == (2, [])
    for kind, key in (("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")):
        assert shown(made(kind, "ray.io/v1", {key: ray(is_scaled=True)["spec"]})) == (2, [])


def stateful_set(**more):
    return made("StatefulSet", "apps/v1", {"replicas": 3, "template": template(2), **more})


def test_pods_of_a_stateful_set_follow_one_another_unless_it_says_parallel():
    assert shown(stateful_set()) == (1, [2, 2])
    assert shown(stateful_set(podManagementPolicy="Parallel")) == (3, [])
    assert shown(made("ReplicaSet", "apps/v1", {"replicas": 3, "template": template(2)})) == (3, [])


@pytest.mark.parametrize(
    ("api", "spec", "want"),
    [
        ("scheduling.volcano.sh/v1beta1", {"minMember": 3}, 3),
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2, "scheduleTimeoutSeconds": 9}, 2),
        ("scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        ("scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"basic": {}}}, 1),
    ],
)
def test_a_pod_group_counts_all_its_pods(api, spec, want):
    plan = plan_of(made("PodGroup", api, spec))
    assert (plan.size, plan.counts_all, plan.source) == (want, True, "PodGroup x")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, "it makes no pods"),
        (made("Job", "batch/v1", {"parallelism": "many", "template": template()}), "parallelism is 'many'"),
        (made("Job", "batch/v1", {"template": {"spec": {"containers": [1]}}}), "cannot be read"),
        (made("RayCluster", "ray.io/v1", {"workerGroupSpecs": 3}), "no pod template"),
        (made("PodGroup", "scheduling.x-k8s.io/v1alpha1", {"minMember": "x"}), "it wants 'x' pods together"),
        (made("PodGroup", "scheduling.x-k8s.io/v1alpha1", {"minMember": True}), "it wants True pods together"),
    ],
)
def test_what_says_no_size_says_why(document, why):
    with pytest.raises(UnknownSizeError, match=why):
        plan_of(document)


def test_an_object_of_any_size_makes_a_bounded_plan():
    plan = plan_of(stateful_set(replicas=2**31 - 1))
    assert (plan.size, len(plan.late)) == (1, MAX_MEMBERS)
    assert plan_of(job({"parallelism": 2**31 - 1})).size == 2**31 - 1, "refused by number, never made"


@pytest.mark.parametrize("field", ["elasticPolicy", "runPolicy", "pytorchReplicaSpecs"])
@pytest.mark.parametrize(
    "value", [None, 3, "x", [], [{}], {"minReplicas": -1}, {"schedulingPolicy": {"minAvailable": "2"}}]
)
def test_a_malformed_job_has_a_size_or_says_why_not(field, value):
    document = kubeflow("PyTorchJob", "pytorchReplicaSpecs", {"Worker": (2, 1)})
    document["spec"][field] = value
    with suppress(UnknownSizeError):
        assert plan_of(document).size >= 1
