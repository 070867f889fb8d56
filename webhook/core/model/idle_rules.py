"""When held GPUs count as idle, where their utilization is read, and what follows. Built by webhook/policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from webhook.core.model.selector import Requirement


class IdleAction(StrEnum):
    """What follows where a pod does not use its GPUs.

    REPORT: an Event on the pod and its owner. PREFER: if it borrows, it is evicted before pods that use their GPUs.
    DEMOTE: if it is guaranteed, it becomes preemptible while others wait. EVICT: it is evicted after a notice.
    """

    REPORT = "report"
    PREFER = "prefer"
    DEMOTE = "demote"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class UtilizationMetric:
    """A metric of an exporter; `full` is its value at 100 %.

    `is_of_whole_gpus`: it means nothing for parts of a GPU.
    """

    name: str
    full: int = 100
    is_of_whole_gpus: bool = False


@dataclass(frozen=True, slots=True)
class SeriesLabels:
    """The labels of a series that name its pod's namespace and its pod, the first that is set counts; and its GPU.

    All of `gpu` together identify a GPU. `part` are those that name a part of one, where they are not empty or 0.
    """

    namespace: tuple[str, ...]
    pod: tuple[str, ...]
    gpu: tuple[str, ...]
    part: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Every label that is read, once."""
        return tuple(dict.fromkeys((*self.namespace, *self.pod, *self.gpu, *self.part)))


@dataclass(frozen=True, slots=True)
class UtilizationSource:
    """A Prometheus, and which of its series are an exporter's own: `series` are labels that all of them have.

    `ca_file` and `token_file` are read again for each round of queries, "" for none.
    """

    url: str
    series: tuple[tuple[str, str], ...]
    metrics: tuple[UtilizationMetric, ...]
    labels: SeriesLabels
    interval_seconds: int = 60
    ca_file: str = ""
    token_file: str = ""


@dataclass(frozen=True, slots=True)
class IdleTerms:
    """A pod is idle if its GPUs were used less than `below_percent` for `for_seconds`; then `actions` follow."""

    below_percent: int
    for_seconds: int
    actions: frozenset[IdleAction]


@dataclass(frozen=True, slots=True)
class IdleOverride:
    """The terms of one team, where it has its own; None where it has those of all."""

    below_percent: int | None = None
    for_seconds: int | None = None
    actions: frozenset[IdleAction] | None = None


@dataclass(frozen=True, slots=True)
class IdleRules:
    """The rules for all teams.

    Of what was observed, at least `share_percent` must be below the bound. A pod is left alone for `startup_seconds`
    after its start, and is evicted `notice_seconds` after it was announced.
    """

    source: UtilizationSource
    terms: IdleTerms
    share_percent: int = 95
    startup_seconds: int = 900
    notice_seconds: int = 600
    exempt_namespaces: tuple[str, ...] = ()
    exempt_selectors: tuple[tuple[Requirement, ...], ...] = ()

    def terms_of(self, own: IdleOverride | None) -> IdleTerms:
        """Return the terms of a team with these of its own."""
        if own is None:
            return self.terms
        return IdleTerms(
            self.terms.below_percent if own.below_percent is None else own.below_percent,
            self.terms.for_seconds if own.for_seconds is None else own.for_seconds,
            self.terms.actions if own.actions is None else own.actions,
        )

    def exempts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether pods of a namespace, or pods with these labels, are never idle."""
        return any(fnmatchcase(namespace, glob) for glob in self.exempt_namespaces) or any(
            all(requirement.matches(labels) for requirement in each) for each in self.exempt_selectors
        )
