"""Apps and batch.

The kinds of Kubernetes that run until they are deleted: pods, and what keeps a number of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.model.policy import PodPath, WorkloadKind
from webhook.kube.kinds.job_failures import Job, job_budget
from webhook.kube.kinds.kind_row import (
    AT_ONCE,
    JOB,
    NO_CONTROLLER,
    PROGRESS,
    REPLICA_SET,
    REPLICAS,
    STATEFUL_SET,
    Failures,
    GangRules,
    Manager,
    PodsFound,
    ReadContext,
    Row,
    Stage,
    Stages,
    gang_kind,
    is_number,
    leader_worker_paths,
    less,
)
from webhook.kube.kinds.model import (
    Budget,
    Count,
    Json,
    Pods,
    Surge,
    count_at,
    dig,
    digits,
    entries,
    listed,
    mapping,
    replicated,
    text,
)
from webhook.kube.objects import keys

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


APP_ROWS: Final = (
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


# Batch kinds of Kubernetes and Volcano, JobSet, LeaderWorkerSet and AppWrapper.


SUSPENDED: Final = "suspended: its pods are created when it is resumed"


def suspended(document: Json, path: str) -> tuple[str, ...]:
    """Return a warning if an object is suspended."""
    return (SUSPENDED,) if dig(document, path) is True else ()


def overlapping(document: Json) -> tuple[str, ...]:
    """Return a warning if runs of an object may overlap."""
    is_allowed = text(dig(document, "spec.concurrencyPolicy")) in {"", "Allow"}
    return ("one run is counted; concurrencyPolicy Allow lets several overlap",) if is_allowed else ()


def job(document: Json, _context: ReadContext) -> PodsFound:
    """Read a Job."""
    return PodsFound((_of_job(document, "spec"),), suspended(document, "spec.suspend"))


def _of_job(document: Json, path: str) -> Pods:
    """Return the pods of a Job; they share the claims of its `scheduling`, as those of the PodGroup made for it."""
    spec = mapping(dig(document, path))
    where = "" if path == "spec" else f"{path}."
    pods = Pods("", job_peak(spec, where), mapping(spec.get("template")))
    shared = {
        (text(each.get("name")), template)
        for each in map(mapping, listed(dig(spec, "scheduling.resourceClaims")))
        if (template := text(each.get("resourceClaimTemplateName")))
    }
    return replace(pods, shared=frozenset(shared)) if shared else pods


def job_peak(spec: Json, where: str) -> Count:
    """Return how many pods of a Job run at once; `where` is the path prefix of its fields."""
    parallelism = count_at(spec, "parallelism", default=1, named=f"{where}parallelism")
    if spec.get("completions") is None:
        return parallelism
    return parallelism.at_most(count_at(spec, "completions", default=None, named=f"{where}completions"))


def cron_job(document: Json, _context: ReadContext) -> PodsFound:
    """Read a CronJob: one run."""
    warnings = suspended(document, "spec.suspend") + overlapping(document)
    return PodsFound((_of_job(document, "spec.jobTemplate.spec"),), warnings)


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


def _remaining_job(spec: Json, status: Json) -> Mapping[str, Any]:
    completions, succeeded = spec.get("completions"), status.get("succeeded")
    if not (is_number(completions) and is_number(succeeded)):
        return spec
    return {**spec, "completions": max(1, completions - succeeded)}


def _remaining_job_set(spec: Json, status: Json) -> Mapping[str, Any]:
    states = map(mapping, listed(status.get("replicatedJobsStatus")))
    done = {text(each.get("name")): each.get("succeeded") for each in states}
    jobs = [less(mapping(job), done.get(text(mapping(job).get("name")))) for job in listed(spec.get("replicatedJobs"))]
    return {**spec, "replicatedJobs": jobs}


def _stages_of_job_set(document: Json) -> Stages:
    """Return the stages of a JobSet's jobs; those they depend on come before them in its list."""
    spec = mapping(document.get("spec"))
    is_in_order = dig(spec, "startupPolicy.startupPolicyOrder") == "InOrder"
    stages: dict[str, Stage] = {}
    for index, entry in enumerate(listed(spec.get("replicatedJobs"))):
        job = mapping(entry)
        stage = Stage(step=index) if is_in_order else AT_ONCE
        for each in listed(job.get("dependsOn")):
            era, step = stages.get(text(mapping(each).get("name")), AT_ONCE)
            is_complete = text(mapping(each).get("status")) == "Complete"
            stage = max(stage, Stage(era + 1) if is_complete else Stage(era, step + 1))
        stages[text(job.get("name"))] = stage
    return Stages(stages, led=_led_jobs(document))


def _led_jobs(document: Json) -> Mapping[str, int]:
    """Return the pods of each Job of the replicated jobs with exclusive placement, by name.

    JobSet's webhook refuses the others of a Job until the first has a node, but for its strategy by node selectors.
    """
    of_set, found = mapping(dig(document, "metadata.annotations")), dict[str, int]()
    for entry in listed(dig(document, "spec.replicatedJobs")):
        job = mapping(entry)
        written = {**of_set, **mapping(dig(job, "template.metadata.annotations"))}
        if keys.JOBSET_EXCLUSIVE in written and keys.JOBSET_NODE_SELECTORS not in written:
            found[text(job.get("name"))] = job_peak(mapping(dig(job, "template.spec")), "").number or 0
    return found


def _one_group(spec: Json, _status: Json) -> Mapping[str, Any]:
    return {**spec, "replicas": 1}  # each group of a LeaderWorkerSet is a gang


def _stages_of_leader_worker_set(document: Json) -> Stages:
    """Return the stages of a group: some make workers once their leader is ready, or has its node."""
    is_exclusive = keys.LWS_EXCLUSIVE in mapping(dig(document, "metadata.annotations"))
    if is_exclusive or dig(document, "spec.startupPolicy") == "LeaderReady":
        return Stages({"worker": Stage(step=1)})
    return Stages()


def _itself(document: Json, _budget: Budget) -> Iterator[tuple[Json, str]]:
    yield document, "Never"


def _run_of_cron_job(document: Json, _budget: Budget) -> Iterator[tuple[Json, str]]:
    yield mapping(dig(document, "spec.jobTemplate")), "Never"


def _jobs_of_set(document: Json, budget: Budget) -> Iterator[tuple[Json, str]]:
    for _, _, entry in entries(document, "spec.replicatedJobs", budget):
        yield mapping(mapping(entry).get("template")), "OnFailure"  # JobSet's own default


_JOB_CONTROLLER: Final = ("kubernetes.io/job-controller",)

BATCH_ROWS: Final = (
    Row(
        WorkloadKind("batch", "Job", "jobs"),
        ("v1",),
        "`spec.parallelism` (1), no more than `spec.completions`",
        job,
        manager=Manager("spec.managedBy", _JOB_CONTROLLER),
        labels={"batch.kubernetes.io/job-name": "{name}", "job-name": "{name}"},
        gang=GangRules(of_controller=True, minimum=_remaining_job),
        deadline="spec.activeDeadlineSeconds",
        jobs=_itself,
        failures=Failures(Job, job_budget),
        is_intermediate=True,
        is_retried=True,
    ),
    Row(
        WorkloadKind("batch", "CronJob", "cronjobs"),
        ("v1",),
        "one run, as a Job",
        cron_job,
        JOB,
        manager=Manager("spec.jobTemplate.spec.managedBy", _JOB_CONTROLLER),
        deadline="spec.jobTemplate.spec.activeDeadlineSeconds",
        jobs=_run_of_cron_job,
    ),
    Row(
        gang_kind("jobset.x-k8s.io", "JobSet", "jobsets"),
        ("v1alpha2",),
        "each of `spec.replicatedJobs`: `replicas` (1) times its Job",
        job_set,
        JOB,
        {"jobset.sigs.k8s.io/jobset-name": "{name}", "jobset.sigs.k8s.io/replicatedjob-name": "{role}"},
        manager=Manager("spec.managedBy", ("jobset.sigs.k8s.io/jobset-controller",)),
        gang=GangRules(marker=keys.JOBSET_NAME, minimum=_remaining_job_set, stages=_stages_of_job_set),
        deadline="spec.replicatedJobs[].template.spec.activeDeadlineSeconds",
        jobs=_jobs_of_set,
        is_intermediate=True,
    ),
    Row(
        gang_kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", leader_worker_paths("spec")),
        ("v1",),
        "`spec.replicas` (1) times one leader and `leaderWorkerTemplate.size` - 1 workers",
        controller=STATEFUL_SET,
        labels={"leaderworkerset.sigs.k8s.io/name": "{name}"},
        gang=GangRules(
            marker=keys.LWS_GROUP,
            name_label=keys.LWS_NAME,
            minimum=_one_group,
            stages=_stages_of_leader_worker_set,
        ),
    ),
    Row(
        gang_kind("batch.volcano.sh", "Job", "jobs"),
        ("v1alpha1",),
        "each of `spec.tasks`: `replicas` (1)",
        volcano_job,
        labels={"volcano.sh/job-name": "{name}", "volcano.sh/task-spec": "{role}"},
        gang=GangRules(described_by="PodGroup"),
    ),
    Row(
        gang_kind("workload.codeflare.dev", "AppWrapper", "appwrappers"),
        ("v1beta2",),
        "those of the objects in `spec.components`",
        app_wrapper,
        makes_objects=True,
        manager=Manager("spec.managedBy", ("workload.codeflare.dev/appwrapper-controller",)),
        gang=GangRules(described_by="each component"),
    ),
)
