"""Rules that only optional services read: idle, defragment, notify.

The policy's rules for moves of running pods that make room: when they are made, and how many.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from webhook.core.model.amounts import Limit
from webhook.core.model.constraints import Requirement

_MINUTES: Final = 60
UTC_NAME: Final = "UTC"
"""Known without the system's table of time zones."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of each day, in minutes after midnight in a time zone that exists: from `start` to before `end`.

    It goes over midnight where the end is not later than the start.
    """

    start: int
    end: int
    zone: str = UTC_NAME

    def is_open(self, now: int) -> bool:
        """Whether it is that time of day; `now` is in seconds of Unix time."""
        local = datetime.fromtimestamp(now, UTC if self.zone == UTC_NAME else ZoneInfo(self.zone))
        minute = local.hour * _MINUTES + local.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def __str__(self) -> str:
        start, end = (f"{each // _MINUTES:02}:{each % _MINUTES:02}" for each in (self.start, self.end))
        return f"{start}-{end} {self.zone}"


@dataclass(frozen=True, slots=True)
class DefragmentRules:
    """Moves are made for pods that wait (`on_demand`), and in a `window` for the largest pod that may come.

    At most `moves_per_hour` in all, and `moves_per_workload` an hour of the pods of one controller. A plan may lose
    `lost_seconds_per_gpu` of GPU time for each GPU of the room that it makes. A pod runs at least
    `minimum_runtime_seconds` before it is moved. `notice_seconds` is None where that of reclaim applies.
    """

    on_demand: bool = False
    window: Window | None = None
    moves_per_hour: int = 10
    moves_per_workload: int = 1
    lost_seconds_per_gpu: Limit = 3600
    minimum_runtime_seconds: int = 600
    notice_seconds: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether any moves are made."""
        return self.on_demand or self.window is not None


# When held GPUs count as idle, where their utilization is read, and what follows. Built by webhook/policy.


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


# The rules of messages to people: where they go, of what, and how often. See the section `notify` of the policy.


class NotifyKind(StrEnum):
    """What messages are about. Evictions and idle reports happen; refusals, limits and trouble begin and end."""

    EVICTIONS = "evictions"
    REFUSALS = "refusals"
    LIMITS = "limits"
    IDLE = "idle"
    TROUBLE = "trouble"


class NotifyTemplate(StrEnum):
    """The format of a message: how Alertmanager calls its webhooks, or its own API."""

    JSON = "json"
    ALERTMANAGER = "alertmanager"


@dataclass(frozen=True, slots=True)
class SecretHeader:
    """A request header whose value is `prefix` and the content of a file in the folder of secrets."""

    name: str
    file: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """One receiver: `url`, or the content of `url_file`. File names are of the folder of secrets."""

    name: str
    url: str = ""
    url_file: str = ""
    template: NotifyTemplate = NotifyTemplate.JSON
    kinds: frozenset[NotifyKind] = frozenset(NotifyKind)
    interval_seconds: int = 600
    repeat_seconds: int = 14_400
    header: SecretHeader | None = None
    ca_file: str = ""

    @property
    def again_seconds(self) -> int:
        """How long after a message the same state is sent again: Alertmanager forgets what is not sent again."""
        is_alert = self.template is NotifyTemplate.ALERTMANAGER
        return self.interval_seconds if is_alert else max(self.interval_seconds, self.repeat_seconds)


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """All receivers, and from when on there is something to say.

    Refusals: more than `refusals` of one team within `refusals_within_seconds`. Limits: use of at least `limit_share`
    of one. `cluster` is the name of this cluster in messages.
    """

    targets: tuple[NotifyTarget, ...] = ()
    cluster: str = ""
    refusals: int = 20
    refusals_within_seconds: int = 600
    limit_share: Fraction = Fraction(9, 10)

    def wants(self, kind: NotifyKind) -> bool:
        """Whether any target gets messages of a kind."""
        return any(kind in target.kinds for target in self.targets)
