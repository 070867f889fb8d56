"""Deadlines of workloads that run on while their pods wait in line, by the manifest.

A pod's own activeDeadlineSeconds is none of them: kubelet counts it from the pod's start.
"""

from typing import Final

from webhook.kube.workloads.model import Json, mapping
from webhook.kube.workloads.paths import dig

_PROGRESS: Final = "spec.progressDeadlineSeconds"
_OF_JOB: Final = "template.spec.activeDeadlineSeconds"
"""The deadline of each Job in a JobSet."""
_DEFAULTS: Final = {_PROGRESS: 600}
"""What holds where a manifest says nothing."""
_NONE: Final = 2**31 - 1
"""The progressDeadlineSeconds that means no deadline."""

_PATHS: Final = {
    ("apps", "Deployment"): _PROGRESS,
    ("argoproj.io", "Rollout"): _PROGRESS,
    ("batch", "Job"): "spec.activeDeadlineSeconds",
    ("batch", "CronJob"): "spec.jobTemplate.spec.activeDeadlineSeconds",
    **{
        ("kubeflow.org", kind): "spec.runPolicy.activeDeadlineSeconds"
        for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
    },
    ("ray.io", "RayJob"): "spec.activeDeadlineSeconds",
    ("argoproj.io", "Workflow"): "spec.activeDeadlineSeconds",
    ("argoproj.io", "CronWorkflow"): "spec.workflowSpec.activeDeadlineSeconds",
}


def running_deadline(document: Json, group: str, kind: str) -> str:
    """Return the name of the deadline with its seconds, of several Jobs the shortest; "" where there is none."""
    if (group, kind) == ("jobset.x-k8s.io", "JobSet"):
        jobs = dig(document, "spec.replicatedJobs")
        found = [_seconds(dig(mapping(job), _OF_JOB)) for job in (jobs if isinstance(jobs, list) else ())]
        return _text(_OF_JOB, min(filter(None, found), default=0))
    path = _PATHS.get((group, kind))
    if path is None:
        return ""
    written = dig(document, path)
    return _text(path, _seconds(_DEFAULTS.get(path) if written is None else written))


def _seconds(value: object) -> int:
    """Return a deadline in seconds, 0 where it is none."""
    is_deadline = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NONE
    return value if is_deadline and isinstance(value, int) else 0


def _text(path: str, seconds: int) -> str:
    return f"{path.rpartition('.')[2]} ({seconds})" if seconds else ""
