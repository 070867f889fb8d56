"""Findings and rows.

Finds the pods in the world that belong to an object of the manifests, by the names that controllers give.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, assert_never

import msgspec

from webhook.core.model.amounts import (
    NodeName,
    ResourceName,
    TeamName,
    Uid,
    Units,
    gpus_text,
    ordinal,
    place_text,
    plural,
    plural_gpus,
)
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Admit, Decision, Deny, NotApplicable, Outcome, Queue, Retry
from webhook.core.model.demand import Demand
from webhook.core.model.pod import Pod, Resident
from webhook.core.model.reasons import Code, Reason, cause_of, refusal_text, waits_for
from webhook.kube.admission.templates import Template
from webhook.kube.admission.trial_pods import Answer
from webhook.kube.kinds.model import Budget, BudgetSpentError, PodSet, Workload, mapping, text
from webhook.kube.world_file.stream import Document

_BARE: Final = ""
"""Kind of the controller of pods that have none."""

_GENERATED: Final = re.compile(r"(-[a-z0-9]{5,10}|-driver)?")
"""Suffix of an intermediate object: a ReplicaSet's hash, a CronJob's minute, a RayCluster's letters."""


class ExistingPods:
    """Pods by namespace and kind and name of their controller, those in the queue as well."""

    def __init__(self, pods: Iterable[Resident | Pod]) -> None:
        self._found: dict[tuple[str, str], dict[str, list[Uid]]] = defaultdict(dict)
        for pod in pods:
            kind, name = (_BARE, pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
            self._found[pod.namespace, kind].setdefault(name, []).append(pod.uid)

    def take(self, workload: Workload) -> list[Uid]:
        """Return the existing pods of a workload, and remove them."""
        taken: list[Uid] = []
        for pod_set in filter(_has_template, workload.pod_sets):
            kind = _controller_kind(pod_set)
            owners = self._found.get((workload.namespace, kind), {})
            for name in [name for name in owners if _belongs_to(workload, pod_set, kind=kind, name=name)]:
                taken += owners.pop(name)
        return taken


def _has_template(pod_set: PodSet) -> bool:
    return bool(pod_set.template)


def _controller_kind(pod_set: PodSet) -> str:
    """Return the kind of the pods' controller."""
    owners: Iterator[str] = (
        text(owner.get("kind"))
        for owner in mapping(pod_set.template.get("metadata")).get("ownerReferences") or ()
        if isinstance(owner, dict)
    )
    return next(owners, _BARE)


def _belongs_to(workload: Workload, pod_set: PodSet, *, kind: str, name: str) -> bool:
    """Whether a controller of this name is the workload itself, or was created by it for these pods."""
    if not name.startswith(workload.name):
        return False
    rest = name.removeprefix(workload.name)
    if kind in (workload.kind, _BARE):
        return not rest
    numbered = rf"(-{re.escape(pod_set.role)})?-\d+" if kind == "StatefulSet" else rf"-{re.escape(pod_set.role)}-\d+"
    return bool(_GENERATED.fullmatch(rest) or re.fullmatch(numbered, rest))


# Finds the lines of GPU requests in the manifest of one object.


class GpuLines:
    """The lines of one object's GPU requests; `line` is that of the object, for requests that are not found.

    `counted` are the resources that count. What is searched through has a budget.
    """

    def __init__(
        self, document: Document, found: Mapping[str, Any], counted: Collection[ResourceName], *, line: int
    ) -> None:
        self._document = document
        self._object = found
        self._counted = counted
        self._line = line
        self._first: int | None = None
        self._budget = Budget()

    def of(self, template: Mapping[str, Any]) -> int:
        """Return the line of a template's request, else of the first one in the object."""
        found = self._below(template.get("spec"))
        return self.first() if found is None else found

    def first(self) -> int:
        """Return the line of the first request in the object."""
        if self._first is None:
            found = self._below(self._object)
            self._first = self._line if found is None else found
        return self._first

    def _below(self, value: object) -> int | None:
        """Search in the order of the manifest; the template's parts are the document's own objects."""
        stack = [value]
        try:
            while stack:
                value = stack.pop()
                if isinstance(value, dict):
                    self._budget.step(1 + len(value))
                    for key in value:
                        if key in self._counted and (line := self._document.line_of(value, key)) is not None:
                            return line
                    stack += reversed(value.values())
                elif isinstance(value, list):
                    self._budget.step(1 + len(value))
                    stack += reversed(value)
        except BudgetSpentError:
            return None
        return None


# The results of a review: workloads, groups of equal pods, and their places in files.


Word = Literal["admitted", "queued", "refused", "unknown"]
"""What would happen to pods, as reviews write it."""

WORDS: Final[Mapping[Outcome, Word]] = {
    Outcome.ADMIT: "admitted",
    Outcome.QUEUE: "queued",
    Outcome.DENY: "refused",
    Outcome.SKIP: "unknown",
}


OUTCOMES: Final = (Outcome.ADMIT, Outcome.QUEUE, Outcome.DENY, Outcome.SKIP)
"""The outcomes of pods in a review: admitted, queued, refused, and what cannot be judged."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a document: file, first line, and number in the file, from 1."""

    source: str
    line: int
    document: int


@dataclass(frozen=True, slots=True)
class Patch:
    """A pod as written and as it would be stored."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]


NOTE: Final = "Note"
"""The code of what has no reason code, such as warnings from reading a manifest."""


class ReviewWarning(NamedTuple):
    """A warning about a workload, with the code of its reason."""

    text: str
    code: str = NOTE

    @classmethod
    def of(cls, reason: Reason, *, about: str = "") -> "ReviewWarning":
        """Return the warning of a reason; `about` goes before its text."""
        return cls(f"{about}{reason.text} ({reason.code})", reason.code)


NO_PLACES: Final = range(0)
_FEW: Final = 5


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Equal pods of one role with the same outcome.

    `count` is None if the manifest does not determine it; `demand` and `nodes` (the first choices) are those of one
    pod, None and empty if unknown. `line` is that of the GPU request. `places` are those in the team's line, from 1,
    empty for pods that would not wait.
    """

    role: str
    count: int | None
    outcome: Outcome
    reasons: tuple[Reason, ...]
    line: int
    demand: Demand | None = None
    team: TeamName | None = None
    tier: Tier | None = None
    nodes: tuple[NodeName, ...] = ()
    patch: Patch | None = None
    places: range = NO_PLACES

    @property
    def places_text(self) -> str:
        """The places in the queue in words, each of a few, such as `3rd and 4th in the queue`; "" for none."""
        if not self.places:
            return ""
        few = [ordinal(each) for each in self.places[:_FEW]]
        if len(self.places) > _FEW:
            return f"{few[0]} to {ordinal(self.places[-1])} in the queue"
        *before, _ = few
        return f"{', '.join(before)}{' and ' if before else ''}{place_text(self.places[-1])}"

    @property
    def texts(self) -> tuple[Reason, ...]:
        """The reasons as messages, those of pods that would wait with their places."""
        if not self.places:
            return self.reasons
        words, where = "waits: {cause}; {places}", self.places_text
        return tuple(Reason(each.code, words, {"cause": cause_of(each), "places": where}) for each in self.reasons)

    @property
    def gpus(self) -> Units:
        """The request of all of them together, in GPU units."""
        return self.demand.gpus * (self.count or 0) if self.demand is not None else 0

    @property
    def asks_gpus(self) -> bool:
        """Whether these pods request GPUs, or may do so."""
        is_concerned = self.outcome in (Outcome.DENY, Outcome.SKIP)
        return is_concerned or self.demand is None or bool(self.demand.gpus)

    @property
    def why(self) -> str:
        """The reasons as the message that the API server would return."""
        return refusal_text(self.reasons)


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """The result of one object, or of one place that cannot be read (without kind and name)."""

    place: Place
    api_version: str
    kind: str
    namespace: str
    name: str
    pods: tuple[PodGroup, ...]
    warnings: tuple[ReviewWarning, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its pods: refused, then unknown, then queued."""
        return _worst(group.outcome for group in self.pods)

    @property
    def asks_gpus(self) -> bool:
        """Whether it requests GPUs, or may do so."""
        return any(group.asks_gpus for group in self.pods)

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}".rstrip()

    def share(self, group: PodGroup) -> str:
        """Return how many of the role's pods are in a group: 3 of 5 pods."""
        if group.count is None:
            return "its pods"
        total = sum(other.count or 0 for other in self.pods if other.role == group.role)
        of = f"{group.count} of {total} pods" if group.count != total else plural(group.count, "pod")
        return f"{of} of role {group.role}" if group.role else of


class WorldFacts(msgspec.Struct, frozen=True, rename="camel"):
    """The world of a review."""

    source: Annotated[str, msgspec.Meta(description="file, cluster or empty")]
    name: str
    age_seconds: Annotated[float | None, msgspec.Meta(description="age of the file, otherwise null")]
    nodes: int
    pods: int
    policy: Annotated[str, msgspec.Meta(description="hash of the policy")]


@dataclass(frozen=True, slots=True)
class Review:
    """All results. `others` counts objects that create no pods, `skipped` documents that are not Kubernetes objects."""

    workloads: tuple[WorkloadResult, ...]
    world: WorldFacts
    others: int = 0
    skipped: int = 0

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of its workloads."""
        return _worst(result.outcome for result in self.workloads)

    def having(self, outcome: Outcome) -> tuple[WorkloadResult, ...]:
        """Return the workloads with this outcome."""
        return tuple(result for result in self.workloads if result.outcome is outcome)


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    found = set(outcomes)
    order = (Outcome.DENY, Outcome.SKIP, Outcome.QUEUE)
    return next((outcome for outcome in order if outcome in found), Outcome.ADMIT)


def demand_text(demand: Demand | None) -> dict[str, str]:
    """Return the devices of a demand as in a manifest."""
    return {} if demand is None else {name: str(amount) for name, amount in demand.devices}


# The findings of a review: one per cause, with file and line, for annotations and for people.


class Level(StrEnum):
    """Severity: an error makes the review fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FailOn(StrEnum):
    """What fails a review in addition to refusals."""

    PREEMPTIBLE = "preemptible"
    WARNING = "warning"


class Allow(StrEnum):
    """What does not fail a review."""

    UNKNOWN = "unknown"


Strictness = frozenset[FailOn | Allow]
_ALLOWED: Final = (Code.UNKNOWN_KIND, Code.OPEN_COUNT)
"""Objects that are read and cannot be judged; what cannot be read, or is too large to be, still fails."""


def is_allowed(group: PodGroup, fail_on: Strictness) -> bool:
    """Return whether pods that cannot be evaluated are tolerated."""
    return Allow.UNKNOWN in fail_on and group.reasons[0].code in _ALLOWED


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `title` names the object, `head` says what happens to it, `message` why."""

    level: Level
    source: str
    line: int
    code: str
    title: str
    head: str
    message: str

    @property
    def text(self) -> str:
        """Title, head and message on one line."""
        return ": ".join(filter(None, (self.title, self.head, self.message)))


def findings(review: Review, fail_on: Strictness) -> list[Finding]:
    """Return all findings in the order of the manifests."""
    return [finding for result in review.workloads for finding in findings_of(result, fail_on)]


def findings_of(result: WorkloadResult, fail_on: Strictness) -> Iterator[Finding]:
    """Yield the findings of one workload, refusals before warnings."""
    for group in result.pods:
        if group.outcome is Outcome.DENY:
            yield _finding(result, group, f"{result.share(group)} refused{_total(result, group)}")
        elif group.outcome is Outcome.SKIP:
            finding = _finding(result, group, "cannot be evaluated" if result.kind else "")
            yield replace(finding, level=Level.WARNING) if is_allowed(group, fail_on) else finding
        elif group.outcome is Outcome.QUEUE:
            yield _in_line(result, group)
        elif group.asks_gpus and group.reasons and (why := group.reasons[0]).code is Code.EXEMPT:
            yield Finding(Level.NOTE, result.place.source, group.line, why.code, result.title, "", why.text)
        elif group.tier is Tier.PREEMPTIBLE and FailOn.PREEMPTIBLE in fail_on and group.asks_gpus:
            yield _finding(result, group, f"{result.share(group)} preemptible")
    line = next((group.line for group in result.pods if group.asks_gpus), result.place.line)
    for warning in result.warnings:
        level = Level.ERROR if FailOn.WARNING in fail_on else Level.WARNING
        yield Finding(level, result.place.source, line, warning.code, result.title, "", warning.text)
    for note in result.notes:
        yield Finding(Level.NOTE, result.place.source, line, NOTE, result.title, "", note)


def _finding(result: WorkloadResult, group: PodGroup, head: str) -> Finding:
    return Finding(Level.ERROR, result.place.source, group.line, group.reasons[0].code, result.title, head, group.why)


def _in_line(result: WorkloadResult, group: PodGroup) -> Finding:
    """Return for what pods would wait in the queue, and at which places if they came now."""
    head, (reason, *_) = f"{result.share(group)} would be queued", group.reasons
    where = f"; {group.places_text}" if group.places else ""
    text = f"{cause_of(reason).text}{where} ({reason.code})"
    return Finding(Level.NOTE, result.place.source, group.line, reason.code, result.title, head, text)


def _total(result: WorkloadResult, group: PodGroup) -> str:
    """Return the total request of a role with more than one pod, and how much of it fits."""
    equal = [other for other in result.pods if other.role == group.role and other.demand == group.demand]
    count = sum(other.count or 0 for other in equal)
    if group.demand is None or group.count is None or count <= 1:
        return ""
    fit = sum(other.count or 0 for other in equal if other.outcome is Outcome.ADMIT)
    if not group.demand.gpus:
        return ""
    each, total = gpus_text(group.demand.gpus), plural_gpus(count * group.demand.gpus)
    return f" (requests {count} x {each} = {total}, {gpus_text(fit * group.demand.gpus)} fit)"


# What becomes of the pods of one role: groups of those with equal outcomes, and the warnings on them.


_ABOUT_NODES: Final = frozenset({Code.NO_ROOM_NOW, Code.NEVER_FITS})


class PodGroups:
    """The pods of a role, grouped by outcome. Without `shows_nodes` it is not known which nodes there are."""

    def __init__(self, blank: PodGroup, *, shows_nodes: bool) -> None:
        self.found: dict[object, PodGroup] = {}
        self._blank = blank
        self._shows_nodes = shows_nodes
        self._nodes: dict[object, dict[NodeName, None]] = {}
        self._warned: dict[Reason, int] = {}
        self._total = 0

    def add(self, answer: Answer, template: Template) -> None:
        """Add an answer for one or more pods."""
        outcome, reasons, tier, warnings = _outcome_of(answer.decision)
        demand = answer.decision.demand if isinstance(answer.decision, Admit) else self._blank.demand
        key = (outcome, tier, reasons, demand)
        for warning in warnings:
            if self._shows_nodes or warning.code not in _ABOUT_NODES:
                self._warned[warning] = self._warned.get(warning, 0) + answer.count
        self._total += answer.count
        nodes = self._nodes.setdefault(key, {})
        if answer.node is not None and (self._shows_nodes or template.pod.node_name):
            nodes[answer.node] = None
        known = self.found.get(key)
        places = range(answer.place, answer.place + answer.count) if answer.place else NO_PLACES
        if known is not None and known.places:
            places = range(known.places.start, places.stop)
        patch = None if answer.patched is None else Patch(template.written, answer.patched)
        self.found[key] = replace(
            known or self._blank,
            outcome=outcome,
            demand=demand,
            reasons=reasons,
            tier=tier,
            team=_team_of(answer.decision) or self._blank.team,
            count=answer.count + (known.count or 0 if known is not None else 0),
            nodes=tuple(nodes),
            patch=known.patch if known is not None else patch,
            places=places,
        )

    def warnings(self) -> list[ReviewWarning]:
        """Return the warnings, with the number of pods of each if it is not all of them."""
        role = f" of role {self._blank.role}" if self._blank.role else ""
        return [
            ReviewWarning.of(warning, about="" if times == self._total else f"{times} of {self._total} pods{role}: ")
            for warning, times in self._warned.items()
        ]


def _outcome_of(decision: Decision) -> tuple[Outcome, tuple[Reason, ...], Tier | None, tuple[Reason, ...]]:
    match decision:
        case Admit():
            return Outcome.ADMIT, (decision.reason,), decision.charge.tier, decision.warnings
        case NotApplicable():
            tier = None if decision.charge is None else decision.charge.tier
            return Outcome.ADMIT, (decision.reason,), tier, decision.warnings
        case Queue(reason=reason):  # the place differs from pod to pod
            return Outcome.QUEUE, (waits_for(reason.code, cause_of(reason)),), None, decision.warnings
        case Deny():
            return Outcome.DENY, decision.reasons, None, ()
        case Retry():
            return Outcome.SKIP, (decision.reason,), None, ()
        case _ as never:
            assert_never(never)


def _team_of(decision: Decision) -> TeamName | None:
    if isinstance(decision, Queue):
        return decision.team
    return decision.charge.team if isinstance(decision, Admit | NotApplicable) and decision.charge is not None else None
