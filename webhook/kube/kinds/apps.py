"""The kinds of Kubernetes that run until they are deleted: pods, and what keeps a number of them."""

from typing import Final

from webhook.core.model.workload_rules import PodPath, WorkloadKind
from webhook.kube.kinds.deadlines import PROGRESS
from webhook.kube.kinds.gang_rules import GangRules, Stages
from webhook.kube.kinds.kind_row import NO_CONTROLLER, REPLICA_SET, REPLICAS, PodsFound, ReadContext, Row
from webhook.kube.kinds.model import Json, Surge, digits, listed, mapping
from webhook.kube.kinds.paths import Count, Pods, dig

_DAEMON_TOLERATIONS: Final = (
    *(
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
        for taint in ("not-ready", "unreachable")
    ),
    *(
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoSchedule"}
        for taint in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
"""The tolerations that the DaemonSet controller adds to every pod, so that it runs on cordoned and unready nodes."""

PER_NODE: Final = "one runs on every eligible node, so the count depends on the cluster"
_PERCENT_DIGITS: Final = 3
_SCALED: Final = "`spec.replicas` (1), or the maximum of its autoscaler"
_AS_CONTROLLER: Final = GangRules(of_controller=True)


def daemon_set(document: Json, _context: ReadContext) -> PodsFound:
    """Read a DaemonSet, whose number of pods depends on the cluster."""
    template = mapping(dig(document, "spec.template"))
    spec = mapping(template.get("spec"))
    tolerations = [*listed(spec.get("tolerations")), *_DAEMON_TOLERATIONS]
    completed = {**template, "spec": {**spec, "tolerations": tolerations}} if spec else template
    return PodsFound((Pods("", Count(None, PER_NODE), completed),))


def rolling_surge(rolling: object, replicas: int) -> Surge | None:
    """Return what a rolling update adds by its maxSurge and maxUnavailable (25%); None if it adds nothing."""
    number = _part(dig(rolling, "maxSurge"), replicas, rounds_up=True)
    unavailable = _part(dig(rolling, "maxUnavailable"), replicas, rounds_up=False)
    return Surge(number, is_first=not unavailable) if number else None


def _part(written: object, replicas: int, *, rounds_up: bool) -> int:
    """Return a number of pods that is given itself or as a percentage; 0 if it cannot be read."""
    written = "25%" if written is None else written
    percent = digits(written.removesuffix("%"), most=_PERCENT_DIGITS) if isinstance(written, str) else None
    if percent is None:
        return min(digits(written) or 0, replicas)
    return min((replicas * percent + (99 if rounds_up else 0)) // 100, replicas)


def _deployment_surge(document: Json, replicas: int) -> Surge | None:
    if dig(document, "spec.strategy.type") == "Recreate":
        return None
    return rolling_surge(dig(document, "spec.strategy.rollingUpdate"), replicas)


def _stateful_stages(document: Json) -> Stages:
    return Stages(is_one_by_one=dig(document, "spec.podManagementPolicy") != "Parallel")


ROWS: Final = (
    Row(
        WorkloadKind("", "Pod", "pods", (PodPath(""),)),
        ("v1",),
        "itself",
        controller=NO_CONTROLLER,
        is_judged=False,
        is_intermediate=True,  # of Spark's executors
    ),
    Row(
        WorkloadKind("", "ReplicationController", "replicationcontrollers", REPLICAS),
        ("v1",),
        "`spec.replicas` (1)",
        gang=_AS_CONTROLLER,
        is_intermediate=True,
        is_retried=True,
    ),
    Row(
        WorkloadKind("apps", "Deployment", "deployments", REPLICAS),
        ("v1",),
        f"{_SCALED}; an update may add `maxSurge` for a while",
        controller=REPLICA_SET,
        deadline=PROGRESS,
        surge=_deployment_surge,
        is_intermediate=True,
    ),
    Row(
        WorkloadKind("apps", "StatefulSet", "statefulsets", REPLICAS),
        ("v1",),
        _SCALED,
        gang=GangRules(of_controller=True, stages=_stateful_stages),
        is_intermediate=True,
        is_retried=True,
    ),
    Row(
        WorkloadKind("apps", "ReplicaSet", "replicasets", REPLICAS),
        ("v1",),
        _SCALED,
        gang=_AS_CONTROLLER,
        is_intermediate=True,
        is_retried=True,
    ),
    Row(
        WorkloadKind("apps", "DaemonSet", "daemonsets"),
        ("v1",),
        "one on every node that it may use: counted where the nodes are known",
        daemon_set,
        is_intermediate=True,
        is_retried=True,
    ),
)
