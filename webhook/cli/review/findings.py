"""What is worth pointing at: one finding per cause, with file and line, for annotations and for people."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.cli.review.results import Judged, PodGroup, Review
from webhook.core.model.amount import gpus_text
from webhook.core.model.decision import Outcome
from webhook.core.model.text import plural_gpus
from webhook.core.model.tier import Tier

NOTE: Final = "Note"
"""Stands for a code where there is none: what a manifest's own reading warns of."""

_CODE: Final = re.compile(r" \(([A-Z][A-Za-z]+)\)$")


class Level(StrEnum):
    """How bad: an error makes the review fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class FailOn(StrEnum):
    """What fails a review besides refusals."""

    PREEMPTIBLE = "preemptible"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to point at. `title` names the object, `head` what happens to it, `message` says why."""

    level: Level
    source: str
    line: int
    code: str
    title: str
    head: str
    message: str

    @property
    def text(self) -> str:
        """All of it on one line."""
        return ": ".join(filter(None, (self.title, self.head, self.message)))


def findings(review: Review, fail_on: frozenset[FailOn]) -> list[Finding]:
    """List all findings in the order of the stream."""
    return [finding for judged in review.workloads for finding in findings_of(judged, fail_on)]


def findings_of(judged: Judged, fail_on: frozenset[FailOn]) -> Iterator[Finding]:
    """Yield the findings of one workload, refusals before warnings."""
    for group in judged.pods:
        if group.outcome is Outcome.DENY:
            yield _finding(judged, group, f"{judged.share(group)} refused{_sum(judged, group)}")
        elif group.outcome is Outcome.SKIP:
            yield _finding(judged, group, "cannot be judged" if judged.kind else "")
        elif group.tier is Tier.PREEMPTIBLE and FailOn.PREEMPTIBLE in fail_on and group.asks_gpus:
            yield _finding(judged, group, f"{judged.share(group)} preemptible")
    line = next((group.line for group in judged.pods if group.asks_gpus), judged.place.line)
    for warning in judged.warnings:
        level = Level.ERROR if FailOn.WARNING in fail_on else Level.WARNING
        yield Finding(level, judged.place.source, line, _code_of(warning), judged.title, "", warning)
    for note in judged.notes:
        yield Finding(Level.NOTE, judged.place.source, line, NOTE, judged.title, "", note)


def _code_of(warning: str) -> str:
    """Read the code at a warning's end; what a kind's own reading warns of has none."""
    found = _CODE.search(warning)
    return found[1] if found is not None else NOTE


def _finding(judged: Judged, group: PodGroup, head: str) -> Finding:
    return Finding(Level.ERROR, judged.place.source, group.line, group.reasons[0].code, judged.title, head, group.why)


def _sum(judged: Judged, group: PodGroup) -> str:
    """Say what the role asks for in all, where that is more than one pod's."""
    alike = [other for other in judged.pods if other.role == group.role and other.demand == group.demand]
    count = sum(other.count or 0 for other in alike)
    if group.demand is None or group.count is None or count <= 1:
        return ""
    fit = sum(other.count or 0 for other in alike if other.outcome is Outcome.ADMIT)
    if not group.demand.gpus:
        return ""
    each, whole = gpus_text(group.demand.gpus), plural_gpus(count * group.demand.gpus)
    return f" (asks {count} x {each} = {whole}, {gpus_text(fit * group.demand.gpus)} fit)"
