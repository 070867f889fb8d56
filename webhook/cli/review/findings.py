"""The findings of a review: one per cause, with file and line, for annotations and for people."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from webhook.cli.review.results import NOTE, PodGroup, Review, WorkloadResult
from webhook.core.model.amount import gpus_text
from webhook.core.model.decision import Outcome
from webhook.core.model.reason import Code, cause_of
from webhook.core.model.text import plural_gpus
from webhook.core.model.tier import Tier


class Level(StrEnum):
    """Severity: an error makes the review fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FailOn(StrEnum):
    """What fails a review in addition to refusals."""

    PREEMPTIBLE = "preemptible"
    WARNING = "warning"


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


def findings(review: Review, fail_on: frozenset[FailOn]) -> list[Finding]:
    """Return all findings in the order of the manifests."""
    return [finding for result in review.workloads for finding in findings_of(result, fail_on)]


def findings_of(result: WorkloadResult, fail_on: frozenset[FailOn]) -> Iterator[Finding]:
    """Yield the findings of one workload, refusals before warnings."""
    for group in result.pods:
        if group.outcome is Outcome.DENY:
            yield _finding(result, group, f"{result.share(group)} refused{_total(result, group)}")
        elif group.outcome is Outcome.SKIP:
            yield _finding(result, group, "cannot be evaluated" if result.kind else "")
        elif group.outcome is Outcome.QUEUE:
            yield _in_line(result, group)
        elif group.tier is Tier.PREEMPTIBLE and FailOn.PREEMPTIBLE in fail_on and group.asks_gpus:
            yield _finding(result, group, f"{result.share(group)} preemptible")
        elif group.asks_gpus and group.reasons and (why := group.reasons[0]).code is Code.EXEMPT:
            yield Finding(Level.NOTE, result.place.source, group.line, why.code, result.title, "", why.text)
    line = next((group.line for group in result.pods if group.asks_gpus), result.place.line)
    for warning in result.warnings:
        level = Level.ERROR if FailOn.WARNING in fail_on else Level.WARNING
        yield Finding(level, result.place.source, line, warning.code, result.title, "", warning.text)
    for note in result.notes:
        yield Finding(Level.NOTE, result.place.source, line, NOTE, result.title, "", note)


def _finding(result: WorkloadResult, group: PodGroup, head: str) -> Finding:
    return Finding(Level.ERROR, result.place.source, group.line, group.reasons[0].code, result.title, head, group.why)


def _in_line(result: WorkloadResult, group: PodGroup) -> Finding:
    """Return for what pods would wait in line, and at which places if they came now."""
    head, (reason, *_) = f"{result.share(group)} would wait in line", group.reasons
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
