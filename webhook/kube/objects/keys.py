"""Labels, annotations, resource names, paths.

Every key, name and apiVersion that Fairgate reads or writes on Kubernetes objects. Constants only.
"""

import re
from typing import Final, NamedTuple

import msgspec

TEAM: Final = "fairgate.dev/team"
"""Pod label: the team charged. Written by Fairgate only."""
TIER: Final = "fairgate.dev/tier"
"""Pod label: requested by the user, then overwritten with the outcome."""
DECISION: Final = "fairgate.dev/decision"
"""Pod annotation: the decision as compact JSON. Written by Fairgate only."""
REQUIRES: Final = "fairgate.dev/requires"
"""Pod annotation: capabilities, comma separated; any pool that offers all of them is suitable."""
POOL: Final = "fairgate.dev/pool"
"""Pod annotation: the one pool to use."""
RUN_TIME: Final = "fairgate.dev/run-time"
"""Annotation of a pod or workload: how long it runs, as its user expects, such as 2h. It is only shown."""
MINIMUM: Final = "fairgate.dev/minimum"
"""Annotation of a pod or workload: how many of its replicas must stay; the others may be evicted first."""
EXEMPT: Final = "fairgate.dev/exempt"
"""Namespace label: Fairgate does not decide on its pods, but still counts their GPUs."""

QUEUE_GATE: Final = "fairgate.dev/queue"
"""Scheduling gate: the pod waits in the queue, uncharged. Only Fairgate removes it."""
WAITING: Final = "fairgate.dev/waiting"
"""Pod annotation: why the pod waits in the queue, in numbers. Written by Fairgate; rewritten when the cause changes."""
WAITING_FACTS: Final = "fairgate.dev/waiting-facts"
"""Pod annotation: the same as compact JSON, for programs: a code, and words with facts. Written with it."""
RECLAIMING: Final = "fairgate.dev/reclaiming"
"""Pod annotation: since when borrowed GPUs under a limit are taken back for the waiting pod. Written by the evictor."""
GANG_WHOLE: Final = "fairgate.dev/gang-whole"
"""Pod annotation: with how many waiting pods its gang is whole, where borrowed GPUs under a limit are to be taken back
for it. Written by the webhook's leader, and read by the evictor, which reads no objects that make gangs."""
LINE_ANNOTATIONS: Final = (WAITING, WAITING_FACTS, RECLAIMING, GANG_WHOLE)
"""What Fairgate writes on queued pods, and removes when they start."""

GANG: Final = "fairgate.dev/gang"
"""Annotation of a pod or workload: "true" makes its pods a gang, which starts whole."""
TOPOLOGY: Final = "fairgate.dev/topology"
"""Pod annotation: the gang is to be in one domain of a node label: KEY or required=KEY, preferred=KEY, none."""
KUEUE_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_ANY_TOPOLOGY: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
TOPOLOGIES: Final = (TOPOLOGY, KUEUE_REQUIRED_TOPOLOGY, KUEUE_PREFERRED_TOPOLOGY, KUEUE_ANY_TOPOLOGY)
"""Annotations with the domain of a gang; the first that is there counts."""
CHECKPOINTED: Final = "fairgate.dev/checkpointed-at"
"""Pod annotation: time of the workload's last checkpoint, in RFC 3339. Written by the workload."""
MOVABLE: Final = "fairgate.dev/movable"
"""Pod annotation: "true" says that the pod may be moved to another node, though it is guaranteed or has volumes."""
EVICT_AT: Final = "fairgate.dev/evict-at"
"""Pod annotation: when a preemptible pod will be evicted, in RFC 3339. Written by the evictor."""
EVICT_FOR: Final = "fairgate.dev/evict-for"
"""Pod annotation: the team that gets its share back."""
IDLE_SINCE: Final = "fairgate.dev/idle-since"
"""Pod annotation: since when its GPUs are not used, in RFC 3339. Written by the evictor."""
WRITTEN_LATER: Final = (*LINE_ANNOTATIONS, EVICT_AT, EVICT_FOR, IDLE_SINCE)
"""What Fairgate alone writes on pods that exist, and removes from those that are created with it."""
RETRY: Final = "fairgate.dev/retry"
"""Pod label: for which hold kube-scheduler was made to try a waiting pod again. Written by the evictor."""
RETRY_AT: Final = "fairgate.dev/retry-at"
"""Annotation of a workload whose pods were refused: when its controller was triggered to retry. Written by Fairgate."""
JOB_EVICTIONS: Final = "fairgate.dev/job-evictions"
"""Job annotation: whether evictions count as failures. Written by its owner."""
POD_REPLACEMENT: Final = "fairgate.dev/pod-replacement-policy"
"""Job annotation: its podReplacementPolicy before Fairgate added a rule that allows no other than Failed."""
COUNT_EVICTIONS: Final = "count"
"""The value with which Fairgate does not change the Job's podFailurePolicy."""
HELD: Final = "fairgate.dev/held"
"""Key of the taint on a node that is reserved for certain pods, and of those pods' tolerations."""
HOLD: Final = "fairgate.dev/hold"
"""Node annotation: the reservation as JSON: for which pods, which victims, and until when."""

GUARDED_LABELS: Final = (TEAM, TIER)
GUARDED_ANNOTATIONS: Final = (DECISION, IDLE_SINCE, EVICT_AT, EVICT_FOR)

MIRROR: Final = "kubernetes.io/config.mirror"
"""Pod annotation: the kubelet made the pod from a file on its node."""
GPUSHARE_DEVICE: Final = "ALIYUN_COM_GPU_MEM_IDX"
"""Pod annotation: the index of the device that gpushare's scheduler extender chose."""
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that kube-scheduler created for the pod's container requests, where it is counted."""
GPU_MEMORY: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"
"""gpushare: device memory in units of a GiB (or MiB), and the number of devices that it is spread over."""

VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
GANG_ANNOTATIONS: Final = (VOLCANO_GROUP, "pod-group-name")  # the second: KAI-Scheduler
SCHEDULER_PLUGINS_GROUP: Final = "scheduling.x-k8s.io/pod-group"
KUBEFLOW_JOB: Final = "training.kubeflow.org/job-name"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
RAY_CLUSTER: Final = "ray.io/cluster"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-key"
"""Label of a LeaderWorkerSet's group; by its startup policy the workers are made once the leader is ready."""
SCHEDULING_GROUP: Final = "schedulingGroup"
"""The key of a gang that spec.schedulingGroup names."""
GANG_LABELS: Final = (
    SCHEDULER_PLUGINS_GROUP,
    "kueue.x-k8s.io/pod-group-name",
    "gang.scheduling.koordinator.sh/name",
    KUBEFLOW_JOB,
    JOBSET_NAME,
    LWS_GROUP,
    RAY_CLUSTER,
)
"""Labels that identify the gangs of other schedulers and operators."""
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotation of a LeaderWorkerSet whose groups have a domain each: workers are made once the leader has its node."""
JOBSET_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTORS: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotations of a JobSet or of a Job's template: each Job has a domain; with the second, nodes are labeled for it."""
KOORDINATOR_MINIMUM: Final = "gang.scheduling.koordinator.sh/min-available"
GANG_SIZES: Final = (
    "kueue.x-k8s.io/pod-group-total-count",
    KOORDINATOR_MINIMUM,
    "leaderworkerset.sigs.k8s.io/size",
)
"""Annotations with the number of a gang's pods."""

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
STAY_ANNOTATIONS: Final = (SAFE_TO_EVICT, DO_NOT_DISRUPT, PREFER_NO_EVICTION)
"""Annotations by which a pod's owner asks other products not to evict it."""

STORED_ANNOTATIONS: Final = (
    *(DECISION, IDLE_SINCE, REQUIRES, POOL, RUN_TIME, MINIMUM, GANG, CHECKPOINTED, MOVABLE),
    *(EVICT_AT, EVICT_FOR, HOLD, GPUSHARE_DEVICE, MIRROR),
    *LINE_ANNOTATIONS,
    *TOPOLOGIES,
    *GANG_ANNOTATIONS,
    *GANG_SIZES,
    *STAY_ANNOTATIONS,
)
"""All annotations that are read of stored pods and nodes, besides those from which the policy reads users."""

NOTEBOOK_STOPPED: Final = "kubeflow-resource-stopped"
"""Annotation by which Kubeflow's notebook controller runs no pod of a Notebook: when it was stopped, in RFC 3339."""
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
DEFAULT_SCHEDULER: Final = "default-scheduler"

CORE_API: Final = "v1"
ADMISSION_API: Final = "admission.k8s.io/v1"
REGISTRATION_GROUP: Final = "admissionregistration.k8s.io"
REGISTRATION_API: Final = f"{REGISTRATION_GROUP}/v1"
PRIORITY_API: Final = "scheduling.k8s.io/v1"
RBAC_API: Final = "rbac.authorization.k8s.io/v1"
EXTENSIONS_API: Final = "apiextensions.k8s.io/v1"
BUDGET_API: Final = "policy/v1"
LEASE_API: Final = "coordination.k8s.io/v1"
DEVICES_GROUP: Final = "resource.k8s.io"
DEVICES_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The versions of that group that are read, in the order in which they are looked for: v1 since Kubernetes 1.34, the
others since 1.33 and 1.32 where they are enabled. Earlier ones have other fields."""
DEVICES_API: Final = f"{DEVICES_GROUP}/{DEVICES_VERSIONS[0]}"
GROUPS_GROUP: Final = "scheduling.k8s.io"
GROUPS_API: Final = f"{GROUPS_GROUP}/v1beta1"

OWN_GROUP: Final = "fairgate.dev"
OWN_API: Final = f"{OWN_GROUP}/v1alpha1"
TEAM_LEDGER: Final = "TeamLedger"
TEAM_LEDGERS: Final = "teamledgers"
REPORT: Final = "Report"
REPORTS: Final = "reports"
"""The objects in which Fairgate publishes its policy and the state of its processes."""
VIEWER: Final = "fairgate-viewer"
"""The ClusterRole that lets its subjects read what Fairgate publishes."""
HELD_NODES_KIND: Final = "HeldNodes"
HELD_NODES: Final = "heldnodes"
HELD_NODES_NAME: Final = "fairgate"
"""The only object of the kind: a ValidatingAdmissionPolicy refers to it by this name."""

OWN_NAMESPACE: Final = "fairgate-system"
SERVER_LEASE: Final = "fairgate"
EVICTOR_LEASE: Final = "fairgate-evictor"
"""By these Leases a leader is elected among the servers, and among the evictors."""
OWN_LABELS: Final = (("app.kubernetes.io/name", "fairgate"),)
"""On every object that Fairgate creates or prints."""
SYSTEM_NAMESPACE: Final = "kube-system"

GPU_MODEL_LABELS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-accelerator-name",
    "aliyun.accelerator/nvidia_name",
    "cloud.tencent.com/tke-accelerator",
    "node.koordinator.sh/gpu-model",
    "cloud.google.com/gke-tpu-accelerator",
)
"""Labels that name a node's GPU model, by precedence: device discovery before the cloud provider."""

GPU_COUNT_LABELS: Final = ("nvidia.com/gpu.count", "aliyun.accelerator/nvidia_count")
"""Labels with a node's number of GPUs, by precedence, for device plugins that do not report it."""


# JSON Patch operations and their JSON Pointers.


Operation = dict[str, object]
"""One operation of a JSON Patch (RFC 6902): op, path, and a value unless it removes."""


def escape(key: str) -> str:
    """Return a key escaped as one token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def keys_of(pointer: str) -> list[str]:
    """Return the keys of a JSON Pointer."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


TEAM_PATH: Final = f"/metadata/labels/{escape(TEAM)}"
TIER_PATH: Final = f"/metadata/labels/{escape(TIER)}"
DECISION_PATH: Final = f"/metadata/annotations/{escape(DECISION)}"


def test(path: str, value: object) -> Operation:
    """Return an operation that fails, and the patch with it, unless a member has this value.

    Of a member that is not there it is `None`: so evanphx/json-patch reads it, by which kube-apiserver patches. Its
    parent must be there.
    """
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: object) -> Operation:
    """Return an operation that adds a member, or an element at the end of a list (`…/-`)."""
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    """Return an operation that removes a member or an element of a list."""
    return {"op": "remove", "path": path}


def put(path: str, value: object, *, exists: bool) -> Operation:
    """Return an operation that sets a member; `exists` says whether the member is present."""
    return {"op": "replace" if exists else "add", "path": path, "value": value}


# Where API servers of different minors serve the same objects.


_HEADS: Final = tuple(f"/apis/{DEVICES_GROUP}/{version}/" for version in DEVICES_VERSIONS)


def served_paths(path: str) -> tuple[str, ...]:
    """Return a path in each version of its API that an API server may have, in the order in which to try them."""
    newest = _HEADS[0]
    return tuple(head + path.removeprefix(newest) for head in _HEADS) if path.startswith(newest) else (path,)


# The version of an API server, and whether Fairgate works with it.


OLDEST: Final = (1, 30)
"""The oldest major and minor version that is tested: docs/reference/versions.md."""

_NUMBER: Final = re.compile(r"\d{1,5}")


class ServerVersion(NamedTuple):
    """A version of Kubernetes; `text` is the server's own name of it, such as v1.31.4-eks-7f9249a."""

    major: int
    minor: int
    text: str

    def __str__(self) -> str:
        return f"Kubernetes {self.major}.{self.minor} ({self.text})"


class _Info(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


def parse_version(body: bytes) -> ServerVersion | None:
    """Return the version that an API server answers at /version; None for any other answer.

    Providers append to numbers: GKE's and EKS's minor is `31+`.
    """
    try:
        info = msgspec.json.decode(body, type=_Info)
    except msgspec.DecodeError:
        return None
    major, minor = _NUMBER.match(info.major), _NUMBER.match(info.minor)
    return None if major is None or minor is None else ServerVersion(int(major[0]), int(minor[0]), info.git_version)


def why_too_old(version: ServerVersion) -> str | None:
    """Return why Fairgate does not work with an API server of this version; None if it does."""
    if (version.major, version.minor) >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return (
        f"the API server is {version}; Fairgate needs Kubernetes {oldest} or newer, whose API servers have "
        "ValidatingAdmissionPolicies and match conditions of webhooks: upgrade the cluster first"
    )


# How a person reads usage from a server: a token of one ServiceAccount, for one audience, checked by the API server.
#
# The API server passes no identity on when it forwards a request to a pod, and a user's own token must not be sent to
# Fairgate: it would be good for everything that the user may do. A token for this audience is good for this alone.


USAGE_PATH: Final = "/usage"
AUDIENCE: Final = "usage.fairgate.dev"
TOKEN_HEADER: Final = "X-Fairgate-Token"  # noqa: S105 - a name; kube-apiserver itself reads Authorization
READER: Final = "fairgate-usage-reader"
"""The ServiceAccount whose tokens readers request; the chart creates it, with the right to list pods."""
TOKEN_SECONDS: Final = 600
"""The shortest lifetime that the API server grants."""
