"""Reviews of objects that make pods: warnings for kubectl, and records in the log."""

import json

import pytest

from tests.builders import encode, reviewed
from tests.core.support.departments import department, tree_policy
from tests.core.support.make import node, policy, team, world
from webhook.core.model.amounts import Namespace
from webhook.core.model.pod import NamespaceFacts
from webhook.core.model.policy import JobEvictions, OnLimit, OnWorkloadLimit, PodPath, WorkloadKind, WorkloadRules
from webhook.kube.admission.reviews import ReviewError
from webhook.server.review.workload_reviews import answer_workload

WARN = WorkloadRules()
REJECT = WorkloadRules(OnWorkloadLimit.REJECT)


def template(gpus=1, **requests):
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests, "limits": limits}}]}}


def job(pods, gpus=1, name="train"):
    spec = {"parallelism": pods, "template": template(gpus)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def review(document, operation="CREATE", **request):
    asked = {"uid": "r1", "namespace": "team-a", "userInfo": {"username": "ada"}} | request
    return reviewed(operation=operation, object=document, **asked)


def place(rules=WARN, **limits):
    share = {"guaranteed": 4, "limit_": 10, **limits}
    return world(policy(team(**share), workloads=rules), [node(f"n{i}") for i in range(4)])


def answer(document, rules=WARN, **request):
    made = answer_workload(review(document, **request), place(rules))
    response = json.loads(made.body)["response"]
    assert response["uid"] == "r1"
    assert "patch" not in response
    assert response["auditAnnotations"] == {"code": made.record.code}
    return response, made.record


def test_a_workload_that_fits_is_allowed_without_a_warning():
    response, record = answer(job(10))
    assert (response["allowed"], response.get("warnings")) == (True, None)
    assert (record.outcome, record.code, record.name, record.team) == ("admit", "WorkloadFits", "Job/train", "team-a")
    assert (record.user, record.policy, record.namespace) == ("ada", "p1", "team-a")


def test_a_workload_over_the_limit_is_allowed_with_a_warning():
    response, record = answer(job(12))
    assert response["allowed"]
    assert response["warnings"] == ["Job train: needs 12 GPUs, team team-a's limit is 10"]
    assert (record.outcome, record.code) == ("warn", "TeamLimitExceeded")
    assert record.message == response["warnings"][0]


def test_the_largest_valid_number_of_pods_still_gives_a_warning():
    response, record = answer(job(2**31 - 1))
    assert response["warnings"][0] == "Job train: needs 2147483647 GPUs, team team-a's limit is 10"
    assert record.code == "TeamLimitExceeded"


def test_policy_may_refuse_it():
    response, record = answer(job(12), REJECT)
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    want = "exceeded quota: Job train: needs 12 GPUs, team team-a's limit is 10 (TeamLimitExceeded)"
    assert response["status"]["message"] == want
    assert [cause["reason"] for cause in response["status"]["details"]["causes"]] == ["TeamLimitExceeded"]
    assert (record.outcome, record.code) == ("deny", "TeamLimitExceeded")


def test_a_workload_that_no_node_can_hold_is_only_a_warning():
    made = answer_workload(review(job(1, gpus=11)), place(REJECT, limit_=None))
    response = json.loads(made.body)["response"]
    assert response["allowed"]
    assert response["warnings"] == [
        "Job train: no node could hold one pod: it asks for nvidia.com/gpu 11, the largest of 4 nodes has "
        "10; ask for less"
    ]


def test_pods_that_the_api_server_would_refuse_are_a_warning():
    broken = job(1)
    broken["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    response, record = answer(broken)
    assert response["allowed"]
    assert record.code == "InvalidRequest"
    assert response["warnings"][0].startswith("Job train: container main: nvidia.com/gpu request 1 has no limit")


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"apiVersion": "ml.example.com/v1", "kind": "Run", "metadata": {"name": "r"}}, "OpenCount"),
        (
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": "t"},
                "spec": {"runtimeRef": {"name": "torch"}},
            },
            "OpenCount",
        ),
    ],
    ids=["a kind that is not described", "a number in another object"],
)
def test_a_workload_that_cannot_be_counted_is_allowed_without_a_warning(document, code):
    response, record = answer(document)
    assert (response["allowed"], response.get("warnings")) == (True, None)
    assert (record.outcome, record.code) == ("skip", code)


@pytest.mark.parametrize(
    ("document", "operation"), [(job(12), "UPDATE"), (None, "DELETE"), (None, "CONNECT"), (None, "CREATE")]
)
def test_only_creations_are_judged(document, operation):
    response, record = answer(document, operation=operation)
    assert (response["allowed"], record.outcome, record.code) == (True, "skip", "NotACreate")


def test_kinds_of_policy_are_judged():
    kind = WorkloadKind("ml.example.com", "Run", "runs", (PodPath("spec.template", ("spec.nodes",)),))
    document = {"apiVersion": "ml.example.com/v1", "kind": "Run", "metadata": {"name": "r"}}
    response, _ = answer({**document, "spec": {"nodes": 3, "template": template(4)}}, WorkloadRules(kinds=(kind,)))
    assert response["warnings"] == ["Run r: needs 12 GPUs, team team-a's limit is 10"]


def test_a_namespace_without_a_team_causes_a_warning():
    response, record = answer(job(1), namespace="elsewhere")
    assert response["warnings"] == ["Job train: namespace elsewhere belongs to no team: no pod may start"]
    assert (record.code, record.team) == ("UnknownTeam", "unassigned")


def test_exempt_namespaces_are_left_alone():
    there = place()
    there.set_namespace(NamespaceFacts(Namespace("team-a"), labels={"fairgate.dev/exempt": "true"}))
    assert answer_workload(review(job(99)), there).record.outcome == "admit"


def test_many_warnings_are_cut_to_three_short_ones():
    roles = {f"Role{i}": {"replicas": 1, "template": template(11 + i)} for i in range(5)}
    spec = {"pytorchReplicaSpecs": roles}
    document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "long" * 15}, "spec": spec}
    response, _ = answer(document)
    assert len(response["warnings"]) == 3
    assert all(len(text) <= 120 for text in response["warnings"])


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", "the body is empty"),
        (b"{", "not valid JSON"),
        (b"[]", "not a valid AdmissionReview"),
        (encode({"apiVersion": "v1", "kind": "Pod"}), "expected admission.k8s.io/v1 AdmissionReview, got v1 Pod"),
        (encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), "request is missing"),
        (review(job(1), uid=""), "request.uid is missing"),
        (review(job(1), namespace=""), "request.namespace is missing"),
        (review([]), "not a valid AdmissionReview: request.object: expected"),
    ],
)
def test_a_request_that_is_not_a_review_is_an_error(body, want):
    with pytest.raises(ReviewError, match=want):
        answer_workload(body, place())


def warnings_of(document, **more):
    return json.loads(answer_workload(review(document), place(**more)).body)["response"].get("warnings", [])


def restarting(pods, restart="OnFailure", **spec):
    made = job(pods)
    made["spec"]["template"]["spec"]["restartPolicy"] = restart
    made["spec"] |= spec
    return made


def test_a_borrowing_job_that_evictions_fail_causes_a_warning():
    counts = WorkloadRules(job_evictions=JobEvictions.COUNT)
    fails = "it fails after more than 6 evicted pods"
    assert warnings_of(restarting(8)) == [f"Job train: borrows up to 4 of 8 GPUs, and {fails}"]
    assert warnings_of(restarting(8, "Never")) == []
    assert warnings_of(restarting(8, "Never"), rules=counts) == [f"Job train: borrows up to 4 of 8 GPUs, and {fails}"]
    assert warnings_of(restarting(4)) == [], "inside the share no pod is evicted"
    assert warnings_of(restarting(8, backoffLimit=0))[0].endswith("and it fails with its first evicted pod")


def test_so_does_a_training_job_that_evictions_fail():
    def training(kind, field, **role):
        specs = {field: {"Worker": {"replicas": 8, "template": template(), **role}}}
        return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "t"}, "spec": specs}

    assert warnings_of(training("PyTorchJob", "pytorchReplicaSpecs")) == []
    first = "borrows up to 4 of 8 GPUs, and it fails with its first evicted pod"
    never = training("PyTorchJob", "pytorchReplicaSpecs", restartPolicy="Never")
    assert warnings_of(never) == [f"PyTorchJob t: {first}"]
    assert warnings_of(training("TFJob", "tfReplicaSpecs")) == [f"TFJob t: {first}"]
    jobs = [{"name": "w", "template": {"spec": {"parallelism": 8, "template": template()}}}]
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}}
    assert "more than 6 evicted pods" in warnings_of({**made, "spec": {"replicatedJobs": jobs}})[0]


def deadline(kind, **spec):
    api, name = ("apps/v1", "replicas") if kind == "Deployment" else ("batch/v1", "parallelism")
    spec = {name: 2, "template": template(1), **spec}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "train"}, "spec": spec}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(deadline("Job", activeDeadlineSeconds=3600), "activeDeadlineSeconds (3600)", id="Job"),
        pytest.param(deadline("Deployment", progressDeadlineSeconds=600), "progressDeadlineSeconds (600)", id="serve"),
    ],
)
def test_a_deadline_that_runs_on_while_pods_wait_in_line_is_a_warning_where_they_may_wait(document, want):
    waits = world(policy(team(guaranteed=4, limit_=10, on_limit=OnLimit.QUEUE)), [node("n0")])
    response = json.loads(answer_workload(review(document), waits).body)["response"]
    text = f"{document['kind']} train: {want} runs on while its pods are queued: raise it, or drop it"
    assert (response["allowed"], response["warnings"]) == (True, [text])
    assert len(text) <= 120, "kube-apiserver cuts longer ones"
    assert answer(document)[0].get("warnings") is None, "where policy refuses, nothing waits"


@pytest.mark.parametrize("key", ["fairgate.dev/gang", "fairgate.dev/topology"])
def test_a_gang_waits_in_line_in_every_team_so_its_deadline_is_a_warning(key):
    value = {"fairgate.dev/gang": "true", "fairgate.dev/topology": "preferred=rack"}[key]
    marked = {"metadata": {"annotations": {key: value}}, **template(1)}
    response, _ = answer(deadline("Job", activeDeadlineSeconds=60, template=marked))
    want = "Job train: activeDeadlineSeconds (60) runs on while its pods are queued: raise it, or drop it"
    assert response["warnings"][-1] == want
    plain = {"metadata": {"annotations": {key: "none" if "topology" in key else "false"}}, **template(1)}
    assert answer(deadline("Job", activeDeadlineSeconds=60, template=plain))[0].get("warnings") is None


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(deadline("Job"), id="no deadline"),
        pytest.param(deadline("Deployment", progressDeadlineSeconds=2**31 - 1), id="no deadline by convention"),
        pytest.param(deadline("Job", activeDeadlineSeconds="soon"), id="malformed"),
        pytest.param(deadline("Job", activeDeadlineSeconds=60, template=template(0)), id="no GPU"),
    ],
)
def test_other_workloads_get_no_warning_of_a_deadline(document):
    waits = world(policy(team(guaranteed=4, limit_=10, on_limit=OnLimit.QUEUE)), [node("n0")])
    assert json.loads(answer_workload(review(document), waits).body)["response"].get("warnings") is None


@pytest.mark.parametrize(
    ("document", "limit", "is_warned"),
    [
        pytest.param(deadline("Job", activeDeadlineSeconds=60), 8, True, id="inside the share, under a limit"),
        pytest.param(deadline("Job", activeDeadlineSeconds=60), None, False, id="no limit above the team"),
        pytest.param(deadline("Job", activeDeadlineSeconds=60, template=template(5)), 8, False, id="beyond the share"),
    ],
)
def test_pods_may_wait_for_borrowers_under_the_limit_of_a_department_whatever_their_teams_policy(
    document, limit, is_warned
):
    tree = tree_policy(left=department("left", "top", guaranteed=8, limit_=limit), guaranteed=4)
    response = json.loads(answer_workload(review(document), world(tree, [node("n0")])).body)["response"]
    assert any("runs on while" in each for each in response.get("warnings", ())) is is_warned
