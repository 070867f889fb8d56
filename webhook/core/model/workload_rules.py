"""What policy says of objects that make pods: how they are judged as a whole, and kinds besides the built-in ones."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class OnWorkloadLimit(StrEnum):
    """The effect on a workload whose pods together exceed a limit."""

    WARN = "warn"
    REJECT = "reject"


class JobEvictions(StrEnum):
    """Whether Jobs get a podFailurePolicy rule by which evictions do not count as failures."""

    IGNORE = "ignore"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class PodPath:
    """Where a kind keeps one role of pods; paths are keys separated by dots.

    The pod is at `template` (or at `fallback` where that has none), a pod template or a bare pod spec. Where a kind has
    none, `resources` is what a pod requests: limits and requests, amounts by name, or a number of `counted`. `fields`
    are fields of the pod's spec that stand elsewhere, each with its path.

    With `each`, a list or mapping, the other paths start from every entry of it, and the entry's name is the role, or
    `{name}` in it; paths that begin with `$.` start from the object. The count is the product of `replicas`, each less
    one where `-1` follows the path, and the first no less than the autoscaler's `maximum`; a missing field counts
    `default`, None where the count is then unknown. `is_optional`: no pods where none are wanted, or where there is
    neither a template nor a number.
    """

    template: str = ""
    replicas: tuple[str, ...] = ()
    role: str = ""
    each: str = ""
    default: int | None = None
    resources: str = ""
    counted: str = "nvidia.com/gpu"
    fallback: str = ""
    maximum: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of object that creates pods. `resource` is its name in the API's URLs; `is_gang`: all or nothing."""

    group: str
    kind: str
    resource: str
    pods: tuple[PodPath, ...] = ()
    is_gang: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadRules:
    """How workloads are judged as a whole, and kinds besides the built-in ones."""

    on_limit: OnWorkloadLimit = OnWorkloadLimit.WARN
    job_evictions: JobEvictions = JobEvictions.IGNORE
    kinds: tuple[WorkloadKind, ...] = ()


DEFAULT_RULES: Final = WorkloadRules()
