"""Deadlines of workloads that run on while their pods wait in line, by the manifest.

A pod's own activeDeadlineSeconds is none of them: kubelet counts it from the pod's start.
"""

from typing import Final

from webhook.kube.workloads.model import Json
from webhook.kube.workloads.paths import dig

_PROGRESS: Final = "spec.progressDeadlineSeconds"
_NONE: Final = 2**31 - 1
"""The progressDeadlineSeconds that means no deadline."""

_PATHS: Final = {
    ("apps", "Deployment"): _PROGRESS,
    ("batch", "Job"): "spec.activeDeadlineSeconds",
    ("batch", "CronJob"): "spec.jobTemplate.spec.activeDeadlineSeconds",
    **{
        ("kubeflow.org", kind): "spec.runPolicy.activeDeadlineSeconds"
        for kind in ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
    },
    ("ray.io", "RayJob"): "spec.activeDeadlineSeconds",
}


def running_deadline(document: Json, group: str, kind: str) -> str:
    """Return the name of the deadline with its seconds; "" where there is none."""
    path = _PATHS.get((group, kind))
    seconds = None if path is None else dig(document, path)
    if path is None or not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds < _NONE:
        return ""
    return f"{path.rpartition('.')[2]} ({seconds})"
