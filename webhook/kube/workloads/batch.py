"""Batch kinds of Kubernetes and Volcano, JobSet, LeaderWorkerSet and AppWrapper."""

from dataclasses import replace
from typing import Final

from webhook.kube.workloads.kind_row import PodsFound, ReadContext
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import Count, Pods, count_at, dig, entries, replicated

SUSPENDED: Final = "suspended: its pods are created when it is resumed"

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


def suspended(document: Json, path: str) -> tuple[str, ...]:
    """Return a warning if an object is suspended."""
    return (SUSPENDED,) if dig(document, path) is True else ()


def overlapping(document: Json) -> tuple[str, ...]:
    """Return a warning if runs of an object may overlap."""
    is_allowed = text(dig(document, "spec.concurrencyPolicy")) in {"", "Allow"}
    return ("one run is counted; concurrencyPolicy Allow lets several overlap",) if is_allowed else ()


def job(document: Json, _context: ReadContext) -> PodsFound:
    """Read a Job."""
    spec = mapping(document.get("spec"))
    return PodsFound(
        (Pods("", job_peak(spec, ""), mapping(spec.get("template"))),), suspended(document, "spec.suspend")
    )


def job_peak(spec: Json, where: str) -> Count:
    """Return how many pods of a Job run at once; `where` is the path prefix of its fields."""
    parallelism = count_at(spec, "parallelism", default=1, named=f"{where}parallelism")
    if spec.get("completions") is None:
        return parallelism
    return parallelism.at_most(count_at(spec, "completions", default=None, named=f"{where}completions"))


def cron_job(document: Json, _context: ReadContext) -> PodsFound:
    """Read a CronJob: one run."""
    spec = mapping(dig(document, "spec.jobTemplate.spec"))
    warnings = suspended(document, "spec.suspend") + overlapping(document)
    return PodsFound((Pods("", job_peak(spec, "spec.jobTemplate.spec."), mapping(spec.get("template"))),), warnings)


def daemon_set(document: Json, _context: ReadContext) -> PodsFound:
    """Read a DaemonSet, whose number of pods depends on the cluster."""
    template = mapping(dig(document, "spec.template"))
    spec = mapping(template.get("spec"))
    tolerations = [*listed(spec.get("tolerations")), *_DAEMON_TOLERATIONS]
    completed = {**template, "spec": {**spec, "tolerations": tolerations}} if spec else template
    return PodsFound((Pods("", Count(None, PER_NODE), completed),))


def job_set(document: Json, context: ReadContext) -> PodsFound:
    """Read a JobSet: all replicas of all replicated jobs at once."""
    pods = tuple(
        Pods(
            name,
            count_at(entry, "replicas", default=1, named=f"{where}replicas").times(
                job_peak(mapping(dig(entry, "template.spec")), f"{where}template.spec.")
            ),
            mapping(dig(entry, "template.spec.template")),
        )
        for name, where, entry in entries(document, "spec.replicatedJobs", context.budget)
    )
    return PodsFound(pods, suspended(document, "spec.suspend"))


def leader_worker_set(document: Json, _context: ReadContext) -> PodsFound:
    """Read a LeaderWorkerSet: each replica is one leader and size - 1 workers."""
    replicas = count_at(document, "spec.replicas", default=1)
    size = count_at(document, "spec.leaderWorkerTemplate.size", default=1)
    worker = mapping(dig(document, "spec.leaderWorkerTemplate.workerTemplate"))
    leader = mapping(dig(document, "spec.leaderWorkerTemplate.leaderTemplate")) or worker
    others = size.without(1)
    pods = [Pods("leader", replicas, leader)]
    if others.number != 0:
        pods.append(Pods("worker", replicas.times(others), worker))
    return PodsFound(tuple(pods))


def app_wrapper(document: Json, _context: ReadContext) -> PodsFound:
    """Read an AppWrapper: all objects that it creates."""
    parts = tuple(mapping(mapping(each).get("template")) for each in listed(dig(document, "spec.components")))
    warnings = suspended(document, "spec.suspend")
    return PodsFound((), warnings if parts else (*warnings, "it has no components"), parts=parts)


def volcano_job(document: Json, context: ReadContext) -> PodsFound:
    """Read a Volcano Job, whose pods use Volcano's scheduler by default."""
    scheduler = text(dig(document, "spec.schedulerName")) or "volcano"
    pods = []
    for entry in entries(document, "spec.tasks", context.budget):
        task = replicated(*entry)
        spec = mapping(task.template.get("spec"))
        completed = {**task.template, "spec": {"schedulerName": scheduler, **spec}} if spec else task.template
        pods.append(replace(task, template=completed))
    return PodsFound(tuple(pods))
