"""The review as data: the stable format of `-o json` and `-o yaml`."""

from typing import Annotated

import msgspec

from webhook.cli import serialization
from webhook.cli.review.results import WORDS, Judged, PodGroup, Review, Word, demand_text
from webhook.core.model.amount import format_gpus
from webhook.core.model.decision import Outcome
from webhook.core.model.tier import Tier


class ReasonReport(msgspec.Struct):
    """One reason, with its stable code."""

    code: str
    message: str


class PodReport(msgspec.Struct):
    """Equal pods of one role that are told the same; a role with several outcomes has several of these."""

    role: Annotated[str, msgspec.Meta(description="role of the pods in the workload, empty where there is only one")]
    count: Annotated[int | None, msgspec.Meta(description="pods at peak, null where the manifest leaves it open")]
    demand: Annotated[dict[str, str], msgspec.Meta(description="GPU resources that one pod asks for")]
    gpus: Annotated[str | None, msgspec.Meta(description="what one pod counts, as in 2, 0.5 or 3/7")]
    team: Annotated[str | None, msgspec.Meta(description="team that would be charged, null where nobody claims it")]
    tier: Annotated[Tier | None, msgspec.Meta(description="null for pods that are charged nothing")]
    nodes: Annotated[list[str], msgspec.Meta(description="first choices, empty where no node has room or is known")]
    outcome: Word
    reasons: list[ReasonReport]


class WorkloadReport(msgspec.Struct, rename="camel"):
    """One object that makes pods, or a place that cannot be read (with empty kind and name)."""

    source: Annotated[str, msgspec.Meta(description="file, or <stdin>")]
    line: Annotated[int, msgspec.Meta(description="first line of the object, from 1")]
    document: Annotated[int, msgspec.Meta(description="number of the document in its file, from 1")]
    api_version: str
    kind: str
    namespace: str
    name: str
    outcome: Annotated[Word, msgspec.Meta(description="the worst of its pods: refused, unknown, queued, admitted")]
    pods: list[PodReport]
    warnings: list[str]


class WorldReport(msgspec.Struct, rename="camel"):
    """What was judged against."""

    source: Annotated[str, msgspec.Meta(description="file, cluster or empty")]
    name: str
    age_seconds: Annotated[float | None, msgspec.Meta(description="age of the file, null where there is none")]
    nodes: int
    pods: int
    policy: Annotated[str, msgspec.Meta(description="hash of the policy")]


class SummaryReport(msgspec.Struct, rename="camel"):
    """Numbers of workloads by outcome, and what they ask for together."""

    outcome: Annotated[Word, msgspec.Meta(description="refused if anything is, else unknown if anything is")]
    workloads: int
    admitted: int
    queued: int
    refused: int
    unknown: int
    pods: Annotated[int, msgspec.Meta(description="pods at peak whose number is known")]
    gpus: Annotated[str, msgspec.Meta(description="what these pods count together")]
    others: Annotated[int, msgspec.Meta(description="objects that make no pods")]
    skipped: Annotated[int, msgspec.Meta(description="documents that are no Kubernetes objects")]


class ReviewReport(msgspec.Struct):
    """What `fairgate review` found out."""

    workloads: list[WorkloadReport]
    world: WorldReport
    summary: SummaryReport


def to_json(review: Review) -> str:
    """Write the review as JSON."""
    return serialization.to_json(_report(review))


def to_yaml(review: Review) -> str:
    """Write the review as YAML."""
    return serialization.to_yaml(_report(review))


def _report(review: Review) -> ReviewReport:
    facts = review.world
    world = WorldReport(facts.source, facts.name, facts.age_seconds, facts.nodes, facts.pods, facts.policy)
    return ReviewReport([_workload(judged) for judged in review.workloads], world, _summary(review))


def _workload(judged: Judged) -> WorkloadReport:
    place = judged.place
    return WorkloadReport(
        source=place.source,
        line=place.line,
        document=place.document,
        api_version=judged.api_version,
        kind=judged.kind,
        namespace=judged.namespace,
        name=judged.name,
        outcome=WORDS[judged.outcome],
        pods=[_pods(group) for group in judged.pods],
        warnings=list(judged.warnings),
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
        reasons=[ReasonReport(reason.code, reason.text) for reason in group.reasons],
    )


def _summary(review: Review) -> SummaryReport:
    groups = [group for judged in review.workloads for group in judged.pods]
    return SummaryReport(
        outcome=WORDS[review.outcome],
        workloads=len(review.workloads),
        admitted=len(review.having(Outcome.ADMIT)),
        queued=0,
        refused=len(review.having(Outcome.DENY)),
        unknown=len(review.having(Outcome.SKIP)),
        pods=sum(group.count or 0 for group in groups),
        gpus=format_gpus(sum(group.gpus for group in groups)),
        others=review.others,
        skipped=review.skipped,
    )
