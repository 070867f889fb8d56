"""`fairgate explain` on a cluster: workloads, what reclaim can do, future and past evictions, the leader."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from tests import builders as b
from tests.cli import sample_world
from tests.cluster.support.fake_api import Answer, Body, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cli.main import main
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 0, limit: 24}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 16, limit: 16}}
"""
NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
EVENTS = "/api/v1/events"
DEPLOYMENTS, JOBS = "/apis/apps/v1/deployments", "/apis/batch/v1/jobs"
LEASES, BUDGETS = "/apis/coordination.k8s.io/v1/leases", "/apis/policy/v1/poddisruptionbudgets"
SCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
SIZE = {"cpu": "4", "memory": "10Gi"}
NO_ROOM = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "1 Insufficient nvidia.com/gpu",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


class Cluster:
    """One node of eight GPUs, and a user of `fairgate explain`."""

    def __init__(self, api, folder):
        self.api, self.folder = api, folder
        self.node("gpu-1")
        for name in ("vision", "nlp", "unowned"):
            api.put(NAMESPACES, name)
        (folder / "policy.yaml").write_text(POLICY)

    def node(self, name, **metadata):
        made = b.node(name, gpus=8)
        taints = metadata.pop("taints", [])
        spec = {"taints": taints}
        return self.api.put(NODES, name, metadata=made["metadata"] | metadata, spec=spec, status=made["status"])

    def pod(self, name, *, namespace="vision", tier="preemptible", status=None, annotations=None, **more):
        made = sample_world.pod(name, namespace=namespace, tier=tier, gpus=more.pop("gpus", 8), **more)
        metadata = made["metadata"] | {"annotations": annotations or {}}
        self.api.put(PODS, name, namespace=namespace, metadata=metadata, spec=made["spec"], status=status or {})
        return self.api.objects[PODS][f"{namespace}/{name}"]["metadata"]["uid"]

    def lease(self, *, holder="evictor-0", silent=0, namespace="fairgate-system"):
        renewed = datetime.now(UTC) - timedelta(seconds=silent)
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        self.api.put(LEASES, "fairgate-evictor", namespace=namespace, spec=spec)

    def event(self, about, reason, message, *, kind="Pod", namespace="vision", component="fairgate", count=1):
        involved = {"kind": kind, "name": about, "namespace": namespace}
        name = f"{about}.{len(self.api.objects[EVENTS])}"
        parts = {"involvedObject": involved, "reason": reason, "message": message, "count": count}
        last = rfc3339(int(time.time()) - 120)
        self.api.put(EVENTS, name, namespace=namespace, source={"component": component}, lastTimestamp=last, **parts)

    async def explain(self, *words, given=""):
        options = ["--policy", str(self.folder / "policy.yaml"), "--kubeconfig", str(self.folder / "k"), "--cluster"]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["explain", *options, *words], input=given)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    async def explained(self, *words):
        return json.loads((await self.explain(*words, "-o", "json")).stdout)


@pytest.fixture
async def cluster(tmp_path):
    async with FakeApi().serving() as api:
        write_kubeconfig(tmp_path / "k", api.url)
        yield Cluster(api, tmp_path)


async def test_a_waiting_pod_shows_reclaimable_gpus_and_the_leader(cluster):
    cluster.lease()
    cluster.pod("borrower", node="gpu-1", gpus=8)
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=NO_ROOM)
    shown = await cluster.explain("pod/waiting", "-n", "nlp")
    assert shown.exit_code == 1
    assert "reclaim  8 GPUs can be reclaimed from vision on gpu-1" in shown.stdout
    assert "1 pod would be evicted: vision/borrower 8" in shown.stdout
    assert "evictor evictor-0 leads" in shown.stdout
    [explained] = await cluster.explained("pod/waiting", "-n", "nlp")
    assert explained["reclaim"] == {
        "state": "possible",
        "node": "gpu-1",
        "gpus": "8",
        "teams": ["vision"],
        "evicted": [{"pod": "vision/borrower", "at": None}],
        "since": None,
        "why": None,
        "leader": "evictor-0",
    }


async def test_a_manifest_shows_the_victims_for_its_pod(cluster):
    cluster.lease()
    cluster.pod("borrower", node="gpu-1", gpus=8)
    shown = await cluster.explain("-", given=json.dumps(b.pod("new", namespace="nlp", gpus=8)))
    assert shown.exit_code == 1
    assert "reclaim  8 GPUs can be reclaimed from vision on gpu-1" in shown.stdout
    borrowing = json.dumps(b.pod("new", namespace="vision", gpus=8))
    assert "reclaim" not in (await cluster.explain("-", given=borrowing)).stdout


async def test_without_an_evictor_nothing_is_promised_to_a_pod_that_borrowers_keep_out(cluster):
    teams = [
        f"{{name: {name}, namespaces: [{name}], department: lab, gpus: {{guaranteed: {share}, limit: 8}}}}"
        for name, share in (("vision", 0), ("nlp", 8))
    ]
    lab = "departments: [{name: lab, gpus: {guaranteed: 8, limit: 8}}]"
    text = f"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n{lab}\nteams: [{', '.join(teams)}]\n"
    (cluster.folder / "policy.yaml").write_text(text)
    cluster.pod("borrower", node="gpu-1", gpus=8)
    new = json.dumps(b.pod("new", namespace="nlp", gpus=4))
    shown = " ".join((await cluster.explain("-", given=new)).stdout.split())
    assert "so 4 GPUs can be reclaimed; 1st in the queue (WaitsForBorrowers)" in shown
    assert "reclaim no evictor leads, so nothing is evicted: there is no Lease fairgate-evictor" in shown
    cluster.lease()
    assert "reclaim evictor evictor-0 leads" in " ".join((await cluster.explain("-", given=new)).stdout.split())


@pytest.mark.parametrize(
    ("lease", "want"),
    [
        pytest.param(
            {"silent": 600}, "no evictor leads, so nothing is evicted: evictor-0 renewed its Lease", id="gone"
        ),
        pytest.param(
            {"holder": ""}, "no evictor leads, so nothing is evicted: its Lease fairgate-evictor is free", id="free"
        ),
        pytest.param(None, "there is no Lease fairgate-evictor in namespace fairgate-system", id="none"),
    ],
)
async def test_a_missing_evictor_is_shown(cluster, lease, want):
    if lease is not None:
        cluster.lease(**lease)
    cluster.pod("borrower", node="gpu-1", gpus=8)
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=NO_ROOM)
    assert want in (await cluster.explain("pod/waiting", "-n", "nlp")).stdout


async def test_an_evictor_of_another_namespace_is_found_and_its_namespace_named(cluster):
    cluster.lease(namespace="gpu-tools")
    cluster.pod("borrower", node="gpu-1", gpus=8)
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=NO_ROOM)
    assert (
        "evictor evictor-0 of namespace gpu-tools leads" in (await cluster.explain("pod/waiting", "-n", "nlp")).stdout
    )


async def test_an_unreadable_lease_is_not_a_missing_evictor(cluster):
    path = "/apis/coordination.k8s.io/v1/namespaces/fairgate-system/leases/fairgate-evictor"
    cluster.api.faults[f"get {path}"].append(Answer(403))
    cluster.pod("borrower", node="gpu-1", gpus=8)
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=NO_ROOM)
    shown = (await cluster.explain("pod/waiting", "-n", "nlp")).stdout
    assert "whether an evictor leads is not known" in shown
    assert "must grant this user the verb get on leases" in shown


def under_way(cluster):
    """A plan of three seconds ago: a held node, a beneficiary with its toleration, and its victim."""
    cluster.lease()
    now = int(time.time())
    note = {keys.EVICT_AT: rfc3339(now + 27), keys.EVICT_FOR: "nlp"}
    victim = cluster.pod("borrower", node="gpu-1", gpus=8, annotations=note)
    let_in = [{"key": keys.HELD, "operator": "Equal", "value": "h1", "effect": "NoSchedule"}]
    waiting = cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=NO_ROOM, tolerations=let_in)
    hold = {
        "id": "h1",
        "until": rfc3339(now + 87),
        "since": rfc3339(now - 3),
        "for": [{"namespace": "nlp", "name": "waiting", "uid": waiting}],
        "evict": [
            {"namespace": "vision", "name": "borrower", "uid": victim, "at": note[keys.EVICT_AT], "for": waiting}
        ],
    }
    taint = {"key": keys.HELD, "value": "h1", "effect": "NoSchedule"}
    cluster.node("gpu-1", annotations={keys.HOLD: json.dumps(hold)}, taints=[taint])
    return note[keys.EVICT_AT]


async def test_a_beneficiary_of_reclaim_is_not_refused_and_shows_its_plan(cluster):
    at = under_way(cluster)
    shown = (await cluster.explain("pod/waiting", "-n", "nlp")).stdout
    assert "HeldRoom" not in shown
    assert "8 GPUs on gpu-1 are reserved" in shown
    assert "; planned " in shown
    assert f"to be evicted for that: vision/borrower at {at}" in shown
    assert "evictor evictor-0 leads" in shown
    [explained] = await cluster.explained("pod/waiting", "-n", "nlp")
    assert (explained["reclaim"]["state"], explained["outcome"]) == ("kept", "admitted")


async def test_other_pods_show_that_the_node_is_held(cluster):
    under_way(cluster)
    cluster.pod("another", namespace="nlp", tier="guaranteed", status=NO_ROOM)
    shown = (await cluster.explain("pod/another", "-n", "nlp", "--node", "gpu-1")).stdout
    assert "1: reserved for waiting pods: gpu-1" in shown
    assert "gpu-1: it is reserved for waiting pods" in shown


async def test_an_announcement_that_its_owner_wrote_on_a_guaranteed_pod_is_not_believed(cluster):
    forged = {"fairgate.dev/evict-at": "2030-01-01T00:00:00Z", "fairgate.dev/evict-for": "nlp"}
    cluster.pod("calm", namespace="vision", node="gpu-1", tier="guaranteed", annotations=forged)
    assert "will be evicted" not in (await cluster.explain("pod/calm", "-n", "vision")).stdout
    [explained] = await cluster.explained("pod/calm", "-n", "vision")
    assert explained["eviction"] is None


async def test_a_victim_shows_the_time_of_its_eviction_and_the_beneficiary(cluster):
    at = under_way(cluster)
    shown = (await cluster.explain("pod/borrower", "-n", "vision")).stdout
    want = f"It will be evicted at {at}: team nlp takes its guaranteed share back for pod nlp/waiting. Save its work"
    assert want in shown
    [explained] = await cluster.explained("pod/borrower", "-n", "vision")
    want = {"at": at, "done": False, "team": "nlp", "beneficiary": "nlp/waiting", "movesTo": None}
    assert explained["eviction"] == want


async def test_a_terminating_victim_shows_that(cluster):
    ending = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    status = {"phase": "Running", "conditions": [ending | {"lastTransitionTime": "2026-01-01T00:00:09Z"}]}
    cluster.pod("borrower", node="gpu-1", status=status)
    shown = (await cluster.explain("pod/borrower", "-n", "vision")).stdout
    assert "It was evicted at 2026-01-01T00:00:09Z and is ending." in shown


async def test_a_deleted_victim_is_known_by_its_events(cluster):
    cluster.event("borrower", "Reclaimed", "evicted: team nlp takes its share back")
    cluster.event("borrower", "Killing", "of others", component="kubelet")
    result = await cluster.explain("pod/borrower", "-n", "vision")
    assert result.exit_code == 2
    assert "pod vision/borrower has ended or was deleted; its Events:" in result.stderr
    assert "Reclaimed 2m ago: evicted: team nlp takes its share back" in result.stderr
    assert "of others" not in result.stderr


def deployment(cluster, replicas, *, gpus=8, namespace="vision", **more):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [b.container(gpus=gpus, **SIZE)]},
    }
    spec = {"replicas": replicas, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    cluster.api.put(DEPLOYMENTS, "web", namespace=namespace, spec=spec, **head, **more)


def replica(cluster, name, *, node=None, **more):
    uid = cluster.pod(name, node=node, gpus=8, controller=("ReplicaSet", "web-5f"), **more)
    made = cluster.api.objects[PODS][f"vision/{name}"]
    labels = made["metadata"]["labels"] | {"app": "web", "pod-template-hash": "5f"}
    cluster.api.put(PODS, name, namespace="vision", **{**made, "metadata": made["metadata"] | {"labels": labels}})
    return uid


async def test_a_deployment_that_lacks_pods_explains_the_next_one_with_its_events(cluster):
    deployment(cluster, 4)
    replica(cluster, "web-5f-a", node="gpu-1")
    cluster.pod("unrelated", gpus=8)
    cluster.pod("another", gpus=8)
    cluster.event("web", "Refused", "exceeded quota: team vision", kind="Deployment", count=14)
    shown = await cluster.explain("deployment/web", "-n", "vision")
    assert shown.exit_code == 1
    first, second, *_ = shown.stdout.splitlines()
    assert first == "Deployment vision/web, one of 3"
    assert second == "1 of 4 pods exist: 1 on nodes, 0 on none yet, 1 preemptible. The next one:"
    assert "outcome  refused" in shown.stdout
    assert "(TeamLimitExceeded)" in shown.stdout
    assert "events   Refused 2m ago, 14 times: exceeded quota: team vision" in shown.stdout
    [explained] = await cluster.explained("deploy/web", "-n", "vision")
    assert (explained["subject"], explained["events"][0]["count"]) == ("Deployment vision/web", 14)


async def test_a_deployment_whose_pods_all_exist_explains_one_that_waits(cluster):
    deployment(cluster, 2)
    replica(cluster, "web-5f-a", node="gpu-1")
    replica(cluster, "web-5f-b")
    shown = (await cluster.explain("deploy/web", "-n", "vision")).stdout
    assert "2 of 2 pods exist: 1 on nodes, 1 on none yet, 2 preemptible. Pod web-5f-b:" in shown
    assert "It waits for a node" in shown


async def test_a_deployment_whose_pods_all_run_explains_one_of_them_and_ends_well(cluster):
    deployment(cluster, 1)
    replica(cluster, "web-5f-a", node="gpu-1")
    shown = await cluster.explain("deploy/web", "-n", "vision")
    assert "1 of 1 pods exist: 1 on nodes, 0 on none yet, 1 preemptible. Pod web-5f-a:" in shown.stdout
    assert shown.exit_code == 0


async def test_a_job_needs_no_more_pods_than_its_remaining_completions(cluster):
    template = {"spec": {"containers": [b.container(gpus=1, **SIZE)]}}
    spec = {"parallelism": 4, "completions": 10, "template": template}
    cluster.api.put(
        JOBS, "train", namespace="vision", spec=spec, status={"succeeded": 9}, apiVersion="batch/v1", kind="Job"
    )
    shown = (await cluster.explain("job/train", "-n", "vision")).stdout
    assert "0 of 1 pods exist" in shown


async def test_a_kind_of_policy_is_read_in_the_version_that_the_server_prefers(cluster):
    kinds = "workloads: {kinds: [{group: acme.io, kind: Train, resource: trains, pods: [{template: spec.pod}]}]}\n"
    (cluster.folder / "policy.yaml").write_text(POLICY + kinds)
    preferred = json.dumps({"kind": "APIGroup", "name": "acme.io", "preferredVersion": {"version": "v7"}})
    cluster.api.faults["get /apis/acme.io"].append(Body(preferred.encode()))
    spec = {"pod": {"spec": {"containers": [b.container(gpus=1, **SIZE)]}}}
    cluster.api.put(
        "/apis/acme.io/v7/trains", "t", namespace="vision", spec=spec, apiVersion="acme.io/v7", kind="Train"
    )
    shown = (await cluster.explain("train/t", "-n", "vision")).stdout
    assert shown.startswith("Train vision/t")


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        pytest.param(None, "Deployment web was not found in namespace vision; try -n NAMESPACE", id="not there"),
        pytest.param(Answer(403), "RBAC must grant this user the verb get on deployments", id="no right"),
    ],
)
async def test_a_missing_or_unreadable_workload_is_reported(cluster, fault, want):
    if fault is not None:
        cluster.api.faults["get /apis/apps/v1/namespaces/vision/deployments/web"].append(fault)
    result = await cluster.explain("deploy/web", "-n", "vision")
    assert result.exit_code == 2
    assert want in result.stderr


async def test_further_objects_that_may_not_be_read_are_omitted_with_a_note(cluster):
    cluster.pod("borrower", node="gpu-1")
    cluster.api.faults[f"list {BUDGETS}"].append(Answer(403))
    cluster.api.faults["list /api/v1/namespaces/vision/events"].append(Answer(403))
    result = await cluster.explain("pod/borrower", "-n", "vision")
    assert result.exit_code == 0
    assert "PodDisruptionBudgets are not looked at" in result.stderr
    assert "Events are not shown" in result.stderr


@pytest.mark.parametrize(("seconds", "want"), [(600, "ending"), (-600, "overdue")], ids=["has time", "had time"])
async def test_a_deleted_pod_is_at_a_stage_by_the_time_now(cluster, seconds, want):
    cluster.pod("going", node="gpu-1", status={"phase": "Running"})
    ends = rfc3339(int(time.time()) + seconds)
    cluster.api.objects[PODS]["vision/going"]["metadata"] |= {
        "deletionTimestamp": ends,
        "deletionGracePeriodSeconds": 30,
    }
    [explained] = await cluster.explained("pod/going", "-n", "vision")
    assert explained["stage"] == want
    flags = ["--policy", str(cluster.folder / "policy.yaml"), "--kubeconfig", str(cluster.folder / "k"), "--cluster"]
    result = await asyncio.to_thread(CliRunner().invoke, main, ["status", *flags, "-o", "json"])
    assert [each["stage"] for each in json.loads(result.stdout).get("unusual", ())] == ["overdue"] * (want == "overdue")


@pytest.mark.parametrize("is_scaled", [True, False], ids=["by an autoscaler", "by annotation"])
async def test_a_borrowing_replica_shows_how_many_of_its_workload_may_go(cluster, is_scaled):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d", "uid": "rs", "controller": True}
    for number in range(3):
        annotations = {} if is_scaled else {"fairgate.dev/minimum": "1"}
        cluster.pod(f"w{number}", node="gpu-1", gpus=1, annotations=annotations, status={"phase": "Running"})
        metadata = cluster.api.objects[PODS][f"vision/w{number}"]["metadata"]
        metadata["ownerReferences"] = [owner]
        metadata["labels"]["pod-template-hash"] = "5d"
    if is_scaled:
        target = {"kind": "Deployment", "name": "web"}
        cluster.api.put(SCALERS, "web", namespace="vision", spec={"scaleTargetRef": target, "minReplicas": 1})
    shown = await cluster.explain("pod/w0", "-n", "vision")
    assert "Replicas ready: 3, minimum: 1; 2 may be evicted first" in " ".join(shown.stdout.split())
    [explained] = await cluster.explained("pod/w0", "-n", "vision")
    assert explained["replicas"] == {"minimum": 1, "pods": 3, "ready": 3, "spare": 2}


async def test_explain_promises_only_what_the_evictor_would_do(cluster):
    """The room that a waiting pod was promised on a free node counts for nothing, as in the evictor."""
    cluster.lease()
    cluster.node("gpu-2")
    cluster.pod("borrower", node="gpu-1", gpus=8)
    decision = {keys.DECISION: json.dumps({"nodes": ["gpu-2"]})}
    message = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) exceed max volume count."
    condition = NO_ROOM["conditions"][0] | {"message": message, "lastTransitionTime": rfc3339(int(time.time()))}
    status = NO_ROOM | {"conditions": [condition]}
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=status, annotations=decision)
    shown = await cluster.explain("pod/waiting", "-n", "nlp")
    assert "reclaim  no GPUs are reclaimed for it: a node has room for it now" in shown.stdout

    status = NO_ROOM | {"conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    cluster.pod("waiting", namespace="nlp", tier="guaranteed", status=status, annotations=decision)
    shown = await cluster.explain("pod/waiting", "-n", "nlp")
    said = f"reclaim  kube-scheduler finds no room on gpu-2: {message.rstrip('.')}; Fairgate cannot see why"
    assert said in shown.stdout
    assert "1 pod would be evicted: vision/borrower 8" in shown.stdout
