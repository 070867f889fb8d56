"""A pod as one of several that replace each other, such as those of a Deployment."""

from typing import Final, NamedTuple

from webhook.core.model.names import WorkloadName


class Replica(NamedTuple):
    """What a pod is a replica of, "" where it is of none, and how many replicas must stay by its own annotation.

    `problem` says why its annotation is ignored, "" if it is not.
    """

    workload: WorkloadName = WorkloadName("")
    minimum: int | None = None
    problem: str = ""


NO_REPLICA: Final = Replica()
