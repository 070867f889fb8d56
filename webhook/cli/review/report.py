"""A review as data: the stable format of `-o json` and `-o yaml`."""

from typing import Annotated

import msgspec

from webhook.cli import serialization
from webhook.cli.reason_report import ReasonReport
from webhook.cli.review.results import WORDS, PodGroup, Review, Word, WorkloadResult, WorldFacts, demand_text
from webhook.core.model.amount import format_gpus
from webhook.core.model.decision import Outcome
from webhook.core.model.tier import Tier


class PlacesReport(msgspec.Struct):
    """The places of equal pods in line, from 1."""

    first: int
    last: int


class PodReport(msgspec.Struct):
    """Equal pods of one role with the same outcome; a role with several outcomes has several of these."""

    role: Annotated[str, msgspec.Meta(description="role of the pods in the workload, empty if there is only one")]
    count: Annotated[int | None, msgspec.Meta(description="pods at peak, null if the manifest does not determine it")]
    demand: Annotated[dict[str, str], msgspec.Meta(description="GPU resources that one pod requests")]
    gpus: Annotated[str | None, msgspec.Meta(description="GPUs that one pod counts, as in 2, 0.5 or 3/7")]
    team: Annotated[str | None, msgspec.Meta(description="team that would be charged, null if there is none")]
    tier: Annotated[Tier | None, msgspec.Meta(description="null for pods that are not charged")]
    nodes: Annotated[list[str], msgspec.Meta(description="first choices, empty if no node has room or is known")]
    outcome: Word
    reasons: list[ReasonReport]
    places: Annotated[
        PlacesReport | None,
        msgspec.Meta(description="in the team's line if they came now, null if they would not wait"),
    ]


class WorkloadReport(msgspec.Struct, rename="camel"):
    """One object that creates pods, or a place that cannot be read (with empty kind and name)."""

    source: Annotated[str, msgspec.Meta(description="file, or <stdin>")]
    line: Annotated[int, msgspec.Meta(description="first line of the object, from 1")]
    document: Annotated[int, msgspec.Meta(description="number of the document in its file, from 1")]
    api_version: str
    kind: str
    namespace: str
    name: str
    outcome: Annotated[Word, msgspec.Meta(description="worst outcome of pods: refused, unknown, queued, admitted")]
    pods: list[PodReport]
    warnings: list[str]


class SummaryReport(msgspec.Struct, rename="camel"):
    """Numbers of workloads by outcome, and their total request."""

    outcome: Annotated[Word, msgspec.Meta(description="refused if any is, otherwise unknown if any is")]
    workloads: int
    admitted: int
    queued: int
    refused: int
    unknown: int
    pods: Annotated[int, msgspec.Meta(description="pods at peak, as far as their number is known")]
    gpus: Annotated[str, msgspec.Meta(description="GPUs that these pods count together")]
    others: Annotated[int, msgspec.Meta(description="objects that create no pods")]
    skipped: Annotated[int, msgspec.Meta(description="documents that are not Kubernetes objects")]


class ReviewReport(msgspec.Struct):
    """The output of `fairgate review`."""

    workloads: list[WorkloadReport]
    world: WorldFacts
    summary: SummaryReport


def to_json(review: Review) -> str:
    """Return the review as JSON."""
    return serialization.to_json(_report(review))


def to_yaml(review: Review) -> str:
    """Return the review as YAML."""
    return serialization.to_yaml(_report(review))


def _report(review: Review) -> ReviewReport:
    return ReviewReport([_workload(result) for result in review.workloads], review.world, _summary(review))


def _workload(result: WorkloadResult) -> WorkloadReport:
    place = result.place
    return WorkloadReport(
        source=place.source,
        line=place.line,
        document=place.document,
        api_version=result.api_version,
        kind=result.kind,
        namespace=result.namespace,
        name=result.name,
        outcome=WORDS[result.outcome],
        pods=[_pods(group) for group in result.pods],
        warnings=[warning.text for warning in result.warnings],
    )


def _pods(group: PodGroup) -> PodReport:
    return PodReport(
        role=group.role,
        count=group.count,
        demand=demand_text(group.demand),
        gpus=None if group.demand is None else format_gpus(group.demand.gpus),
        team=group.team,
        tier=group.tier,
        nodes=list(group.nodes),
        outcome=WORDS[group.outcome],
        reasons=[ReasonReport.of(reason) for reason in group.texts],
        places=PlacesReport(group.places[0], group.places[-1]) if group.places else None,
    )


def _summary(review: Review) -> SummaryReport:
    groups = [group for result in review.workloads for group in result.pods]
    return SummaryReport(
        outcome=WORDS[review.outcome],
        workloads=len(review.workloads),
        admitted=len(review.having(Outcome.ADMIT)),
        queued=len(review.having(Outcome.QUEUE)),
        refused=len(review.having(Outcome.DENY)),
        unknown=len(review.having(Outcome.SKIP)),
        pods=sum(group.count or 0 for group in groups),
        gpus=format_gpus(sum(group.gpus for group in groups)),
        others=review.others,
        skipped=review.skipped,
    )
