"""What reclaim reads of a pod: its gang, its times, its notice."""

import json

import msgspec
import pytest

from tests import builders
from tests.core.support.make import node, policy, world
from webhook.core.model.pod import DEFAULT_GRACE_SECONDS
from webhook.core.model.policy import BUILT_IN_RESOURCES, ReclaimRules
from webhook.core.reclaim.reclaim_pods import victim_of
from webhook.kube.kinds.job_failures import Job, workload_id
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_reclaim_pod
from webhook.kube.pod.unbound import MAX_WHY

STARTED = "2026-11-21T10:00:00Z"
SECONDS = 1795255200


def read(made):
    made["metadata"].setdefault("uid", "u1")
    return to_reclaim_pod(msgspec.json.decode(json.dumps(made), type=objects.Pod), BUILT_IN_RESOURCES)


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({"labels": {"training.kubeflow.org/job-name": "bert"}}, "vision/training.kubeflow.org/job-name=bert"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}}, "vision/jobset.sigs.k8s.io/jobset-name=js"),
        ({"annotations": {"scheduling.k8s.io/group-name": "v"}}, "vision/scheduling.k8s.io/group-name=v"),
        ({"schedulingGroup": {"podGroupName": "core"}}, "vision/schedulingGroup=core"),
        (
            {"schedulingGroup": {"podGroupName": "core"}, "labels": {"ray.io/cluster": "r"}},
            "vision/schedulingGroup=core",
        ),
        ({"labels": {"batch.kubernetes.io/job-name": "sweep"}}, None),
    ],
    ids=["Kubeflow", "JobSet", "Volcano", "core", "the first marker counts", "a plain Job is no gang"],
)
def test_gangs_are_known_by_their_markers(more, want):
    assert read(builders.pod(**more)).gang == want


def test_an_owner_is_known_by_its_namespace_and_uid():
    """A pod may name any UID: it must not be taken for one of another namespace's Job."""

    def owned(namespace, uid, **more):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True, **more}
        made = builders.pod(namespace=namespace)
        made["metadata"]["ownerReferences"] = [owner]
        return read(made)

    job = msgspec.json.decode('{"metadata": {"name": "j", "namespace": "vision", "uid": "u-1"}}', type=Job)
    mine = workload_id(job.metadata.namespace, job.metadata.uid)
    assert owned("vision", "u-1").workload == mine
    assert owned("nlp", "u-1").workload != mine
    assert owned("vision", "u-1", controller=False).workload is None
    assert (owned("vision", "").workload, owned("vision", "u" * 65).workload) == (None, None)


def test_times_and_notice_are_read():
    made = builders.pod(
        node="n1",
        annotations={"fairgate.dev/checkpointed-at": STARTED, "fairgate.dev/evict-at": STARTED},
        terminationGracePeriodSeconds=5,
        schedulingGates=[{"name": "hold"}],
    )
    made["metadata"]["deletionTimestamp"] = STARTED
    made["status"] = {"phase": "Running", "startTime": STARTED}
    tenant = read(made)
    assert (tenant.started_at, tenant.saved_at, tenant.pod.notice_at, tenant.leaves_at) == (SECONDS,) * 4
    assert (tenant.grace_seconds, tenant.is_gated, tenant.pod.is_terminating) == (5, True, True)


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, False),
        ({"karpenter.sh/do-not-disrupt": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "2h"}, True),
        ({"karpenter.sh/do-not-disrupt": "false"}, False),
        ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, True),
        ({"descheduler.alpha.kubernetes.io/evict": "true"}, False),
    ],
)
def test_a_request_to_stay_is_read_as_the_product_reads_it_that_it_is_for(annotations, want):
    assert read(builders.pod(annotations=annotations)).asks_to_stay is want


def test_no_node_offers_what_a_share_of_hami_asks_for():
    """So no room is made for it: HAMi's scheduler keeps memory and cores of devices to itself."""
    place = world(policy(), [node("n0")])
    made = builders.pod(schedulerName="hami-scheduler")
    for asked, want in (({"nvidia.com/gpu": "1"}, True), ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9"}, False)):
        made["spec"]["containers"][0]["resources"] = {"limits": asked}
        gpu_pod = read(made)
        assert bool(place.fleet.with_capacity(gpu_pod.demand, place.fleet.matching(gpu_pod.constraints))) is want


def test_a_pod_that_says_nothing_has_the_defaults():
    tenant = read(builders.pod())
    assert not tenant.asks_to_stay
    assert (tenant.started_at, tenant.saved_at, tenant.pod.notice_at, tenant.leaves_at) == (0, 0, 0, None)
    assert tenant.grace_seconds == 30


def test_the_promised_node_takes_no_room():
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    made = builders.pod(labels=labels, annotations={"fairgate.dev/decision": '{"nodes":["n1"]}'})
    tenant = read(made)
    assert (tenant.pod.promised, tenant.pod.node, tenant.is_waiting) == (None, None, True)


@pytest.mark.parametrize(("mark", "want"), [('{"nodes":["n1"]}', ("n1",)), ('{"nodes":[],"listed":2}', ("n3", "n1"))])
def test_the_chosen_nodes_are_read_from_the_decision_or_from_the_affinity(mark, want):
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in ("n3", "n1")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}
    waiting = {"labels": labels, "annotations": {"fairgate.dev/decision": mark}, "affinity": affinity}
    assert read(builders.pod(**waiting)).chosen == want
    assert read(builders.pod(**waiting, node="n1")).chosen == ()


def test_how_it_is_to_be_spread_is_read_while_it_waits():
    spread = [{"topologyKey": "zone", "maxSkew": 1, "labelSelector": {}, "whenUnsatisfiable": "DoNotSchedule"}]
    assert [rule.key for rule in read(builders.pod(topologySpreadConstraints=spread)).topology] == ["zone"]
    assert read(builders.pod(node="n1", topologySpreadConstraints=spread)).topology == ()


def test_a_finished_pod_is_ignored():
    assert read(builders.pod(phase="Succeeded")) is None


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({}, SECONDS),
        ({"fairgate.dev/checkpointed-at": "1999-01-01T00:00:00Z"}, SECONDS),
        ({"fairgate.dev/checkpointed-at": "soon"}, SECONDS),
        ({"fairgate.dev/checkpointed-at": "2026-11-21T11:00:00Z"}, SECONDS + 3600),
    ],
    ids=["nothing", "long ago", "nonsense", "just now"],
)
def test_a_false_checkpoint_time_gains_nothing(said, want):
    """Work since the last save is the cost of a victim: no user can make it more than since the start."""
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"}
    made = builders.pod(labels=labels, annotations=said, node="n0")
    made["status"] = {"phase": "Running", "startTime": STARTED}
    assert victim_of(read(made), rules=ReclaimRules(), guards=()).saved_at == want - DEFAULT_GRACE_SECONDS


def reported(message, *, reason="Unschedulable", status="False", node=None):
    made = builders.pod(labels={"fairgate.dev/team": "vision", "fairgate.dev/tier": "guaranteed"}, node=node)
    condition = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
    made["status"] = {"conditions": [{"type": "Ready"}, condition | {"lastTransitionTime": STARTED}]}
    return read(made).report


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: none", (True, False)),
        ("0/3 nodes are available: 1 Too many pods, 2 node(s) were unschedulable.", (True, False)),
        ("0/2 nodes are available: 2 cannot allocate all claims.", (True, False)),
        ("0/2 nodes are available: 2 node(s) had untolerated taint(s).", (False, True)),
        ('0/2 nodes are available: persistentvolumeclaim "nope" not found. not found', (False, False)),
        ("0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.", (False, False)),
    ],
)
def test_the_scheduler_condition_shows_whether_room_would_help(message, want):
    found = reported(message)
    assert (found.since, found.is_for_room, found.is_for_taints) == (SECONDS, *want)


def test_the_report_has_the_schedulers_words_without_what_preemption_would_do():
    words = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had volume node affinity conflict"
    found = reported(f"{words}. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
    assert (found.why, found.is_for_zone) == (words, True)
    assert not reported("2 Insufficient nvidia.com/gpu").is_for_zone


def test_the_report_says_whether_existing_pods_keep_the_pod_off_some_node():
    message = "0/2 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 1 node(s) {}"
    found = reported(message.format("were unschedulable"))
    assert (found.is_for_peers, found.is_for_room) == (True, False)
    assert not reported("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.").is_for_peers


def test_words_of_any_length_and_with_any_characters_are_bounded_and_printable():
    found = reported("\x1b[31m" + "x" * 100_000)
    assert len(found.why) <= MAX_WHY
    assert found.why.isprintable()


def test_a_pod_without_that_scheduler_condition_is_not_reported():
    words = "2 Insufficient nvidia.com/gpu"
    assert reported(words, reason="SchedulingGated") is None
    assert reported(words, status="True") is None
    assert reported(words, node="n0") is None
    assert read(builders.pod()).report is None


@pytest.mark.parametrize(("said", "want"), [("4", 4), ("-4", 0), ("9" * 7, 0), ("many", 0)])
def test_a_gang_states_its_size(said, want):
    made = builders.pod(annotations={"kueue.x-k8s.io/pod-group-total-count": said})
    assert read(made).gang_size == want


@pytest.mark.parametrize(
    ("reason", "want"), [("Infeasible", 4_000), ("Deferred", 60_000)], ids=["never granted", "waits for room"]
)
def test_a_victim_that_is_resized_gives_what_kube_scheduler_counts(reason, want):
    """Else borrowers are evicted for a pod that fits beside one whose resize the node can never grant."""
    made = builders.pod(node="n0", containers=[builders.container(cpu="60")])
    made["status"] = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        "containerStatuses": [{"name": "train", "allocatedResources": {"cpu": "4", "memory": "48Gi"}}],
    }
    assert dict(read(made).pod.demand.requests)["cpu"] == want


@pytest.mark.parametrize(("written", "want"), [("true", True), ("false", False), ("True", False), ("", False)])
def test_its_owner_says_that_it_may_be_moved(written, want):
    found = read(builders.pod(node="gpu-1", annotations={"fairgate.dev/movable": written}))
    assert found.is_movable is want
