"""Batch kinds of Kubernetes and Volcano, and the sets of pods and Jobs built on them."""

from typing import Final

from webhook.kube.workloads.kind_row import Found, Scene
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import Count, Pods, count_at, dig, entries

SUSPENDED: Final = "suspended: its pods come when it is resumed"

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
"""What the DaemonSet controller adds to every pod, so that it runs on cordoned and ailing nodes too."""

PER_NODE: Final = "one runs on every node that it may use, so the count depends on the cluster"


def suspended(document: Json, path: str) -> tuple[str, ...]:
    """Warn of an object that waits to be resumed."""
    return (SUSPENDED,) if dig(document, path) is True else ()


def job(document: Json, _scene: Scene) -> Found:
    """Read a Job."""
    spec = mapping(document.get("spec"))
    return Found((Pods("", job_peak(spec, ""), mapping(spec.get("template"))),), suspended(document, "spec.suspend"))


def job_peak(spec: Json, where: str) -> Count:
    """Count the pods of a Job that run at once; `where` is what stands before its fields' names."""
    parallelism = count_at(spec, "parallelism", default=1, named=f"{where}parallelism")
    if spec.get("completions") is None:
        return parallelism
    return parallelism.at_most(count_at(spec, "completions", default=None, named=f"{where}completions"))


def cron_job(document: Json, _scene: Scene) -> Found:
    """Read a CronJob: one run of it."""
    spec = mapping(dig(document, "spec.jobTemplate.spec"))
    warnings = suspended(document, "spec.suspend")
    if text(dig(document, "spec.concurrencyPolicy")) in {"", "Allow"}:
        warnings += ("one run is counted; concurrencyPolicy Allow lets several overlap",)
    return Found((Pods("", job_peak(spec, "spec.jobTemplate.spec."), mapping(spec.get("template"))),), warnings)


def daemon_set(document: Json, _scene: Scene) -> Found:
    """Read a DaemonSet, whose number only a cluster can tell."""
    template = mapping(dig(document, "spec.template"))
    spec = mapping(template.get("spec"))
    tolerations = [*listed(spec.get("tolerations")), *_DAEMON_TOLERATIONS]
    dressed = {**template, "spec": {**spec, "tolerations": tolerations}} if spec else template
    return Found((Pods("", Count(None, PER_NODE), dressed),))


def job_set(document: Json, _scene: Scene) -> Found:
    """Read a JobSet: every replica of every replicated job at once."""
    pods = tuple(
        Pods(
            name,
            count_at(entry, "replicas", default=1, named=f"{where}replicas").times(
                job_peak(mapping(dig(entry, "template.spec")), f"{where}template.spec.")
            ),
            mapping(dig(entry, "template.spec.template")),
        )
        for name, where, entry in entries(document, "spec.replicatedJobs")
    )
    return Found(pods, suspended(document, "spec.suspend"))


def leader_worker_set(document: Json, _scene: Scene) -> Found:
    """Read a LeaderWorkerSet: each replica is one leader and size - 1 workers."""
    replicas = count_at(document, "spec.replicas", default=1)
    size = count_at(document, "spec.leaderWorkerTemplate.size", default=1)
    worker = mapping(dig(document, "spec.leaderWorkerTemplate.workerTemplate"))
    leader = mapping(dig(document, "spec.leaderWorkerTemplate.leaderTemplate")) or worker
    others = size if size.number is None else Count(max(size.number - 1, 0))
    pods = [Pods("leader", replicas, leader)]
    if others.number != 0:
        pods.append(Pods("worker", replicas.times(others), worker))
    return Found(tuple(pods))


def app_wrapper(document: Json, _scene: Scene) -> Found:
    """Read an AppWrapper: the objects that it makes, all of them together."""
    parts = tuple(mapping(mapping(each).get("template")) for each in listed(dig(document, "spec.components")))
    warnings = suspended(document, "spec.suspend")
    return Found((), warnings if parts else (*warnings, "it has no components"), parts=parts)


def volcano_job(document: Json, _scene: Scene) -> Found:
    """Read a Volcano Job, whose pods go to Volcano's scheduler unless it says otherwise."""
    scheduler = text(dig(document, "spec.schedulerName")) or "volcano"
    pods = []
    for name, where, task in entries(document, "spec.tasks"):
        template = mapping(mapping(task).get("template"))
        spec = mapping(template.get("spec"))
        dressed = {**template, "spec": {"schedulerName": scheduler, **spec}} if spec else template
        pods.append(Pods(name, count_at(task, "replicas", default=1, named=f"{where}replicas"), dressed))
    return Found(tuple(pods))
