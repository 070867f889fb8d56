"""The order in which an object's pods are made: which of them come only once others run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.kube.objects import keys
from webhook.kube.workloads.model import Json, listed, mapping, text
from webhook.kube.workloads.paths import dig


class Stage(NamedTuple):
    """When a role's pods are made: in a later `era` once others have completed, in a later `step` once others run."""

    era: int = 0
    step: int = 0


_AT_ONCE: Final = Stage()


@dataclass(frozen=True, slots=True)
class Stages:
    """The stage of each role of which one is known. `is_one_by_one`: also the pods of one role follow one another."""

    by_role: Mapping[str, Stage] = field(default_factory=dict)
    is_one_by_one: bool = False

    def of(self, role: str) -> Stage:
        """Return the stage of a role."""
        return self.by_role.get(role, _AT_ONCE)


def stages_of(document: Json) -> Stages:
    """Return the order in which an object's pods are made."""
    spec = mapping(document.get("spec"))
    match document.get("kind"):
        case "JobSet":
            return Stages(_stages_of_jobs(spec))
        case "LeaderWorkerSet" if _workers_follow(document, spec):
            return Stages({"worker": Stage(step=1)})
        case "MPIJob" if spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
            return Stages({"Launcher": Stage(step=1)})
        case "StatefulSet":
            return Stages(is_one_by_one=spec.get("podManagementPolicy") != "Parallel")
    return Stages()


def _workers_follow(document: Json, spec: Json) -> bool:
    """Whether a LeaderWorkerSet makes workers once their leader is ready, or has its node."""
    is_exclusive = keys.LWS_EXCLUSIVE in mapping(dig(document, "metadata.annotations"))
    return is_exclusive or spec.get("startupPolicy") == "LeaderReady"


def _stages_of_jobs(spec: Json) -> dict[str, Stage]:
    """Return the stages of a JobSet's jobs; those they depend on come before them in its list."""
    is_in_order = dig(spec, "startupPolicy.startupPolicyOrder") == "InOrder"
    stages: dict[str, Stage] = {}
    for index, entry in enumerate(listed(spec.get("replicatedJobs"))):
        job = mapping(entry)
        stage = Stage(step=index) if is_in_order else _AT_ONCE
        for each in listed(job.get("dependsOn")):
            era, step = stages.get(text(mapping(each).get("name")), _AT_ONCE)
            is_complete = text(mapping(each).get("status")) == "Complete"
            stage = max(stage, Stage(era + 1) if is_complete else Stage(era, step + 1))
        stages[text(job.get("name"))] = stage
    return stages
