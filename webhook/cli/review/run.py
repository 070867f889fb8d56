"""Runs `fairgate review`: the world to review in, the answers, the report.

A review as data: the stable format of `-o json` and `-o yaml`.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import track

from webhook.cli import output
from webhook.cli.grid import ReasonReport
from webhook.cli.live_cluster import COMPLETE, Coverage
from webhook.cli.options import shows_progress
from webhook.cli.review.answers import answer_reviews
from webhook.cli.review.collect import Collected, collect, read_sources
from webhook.cli.review.command import Format, Options, Output
from webhook.cli.review.evaluator import Evaluator, Item
from webhook.cli.review.formats.formats import to_github, to_junit, to_markdown, to_sarif, to_table
from webhook.cli.review.results import (
    WORDS,
    Level,
    Place,
    PodGroup,
    Review,
    Strictness,
    Word,
    WorkloadResult,
    WorldFacts,
    demand_text,
    findings,
    is_allowed,
)
from webhook.cli.screen import progress
from webhook.cli.world_source import Source, choose_policy, limit_ranges, origin_of, read_once, without_placement
from webhook.core.model.amounts import format_gpus, printable
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Outcome
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Policy
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World


class PlacesReport(msgspec.Struct):
    """The places of equal queued pods, from 1."""

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
    return output.to_json(_report(review))


def to_yaml(review: Review) -> str:
    """Return the review as YAML."""
    return output.to_yaml(_report(review))


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


# The world of a review, from a file, from a live cluster or empty, and what becomes of manifests there.


@dataclass(frozen=True, slots=True)
class Empty:
    """No nodes and no pods: only limits decide, with nothing used."""


WorldSource = Source | Empty


@dataclass(frozen=True, slots=True)
class ReviewWorld:
    """The world of a review, with its LimitRanges; unless `is_room_known`, only limits decide."""

    world: World
    facts: WorldFacts
    coverage: Coverage
    is_room_known: bool
    limit_ranges: tuple[Mapping[str, Any], ...] = ()


def open_world(source: WorldSource, policy: Policy, collected: Collected, *, namespace: str) -> ReviewWorld:
    """Return the world, with the namespaces, PriorityClasses and DRA objects of the manifests. Raises WorldError."""
    if isinstance(source, Empty):
        classes = frozenset(each.name for each in collected.priority_classes)
        world = World(without_placement(policy, priority_classes=classes))
        review_world = ReviewWorld(
            world, WorldFacts("empty", "", None, 0, 0, policy.hash), COMPLETE, is_room_known=False
        )
    else:
        origin, view = origin_of(source), read_once(source, policy, namespaces=(namespace,))
        pods = sum(1 for pod in view.world.pods() if not is_hidden_usage(pod))
        facts = WorldFacts(origin.source, origin.name, origin.age_seconds, len(view.world.fleet), pods, policy.hash)
        ranges = limit_ranges(source, namespaces=(namespace,))
        is_known = view.coverage.is_room_known
        review_world = ReviewWorld(view.world, facts, view.coverage, is_room_known=is_known, limit_ranges=ranges)
    add_manifests(collected, review_world.world)
    return review_world


def add_manifests(collected: Collected, world: World) -> None:
    """Add namespaces, PriorityClasses and DRA objects; labels and annotations of an existing namespace are merged."""
    for facts in collected.namespaces:
        known = world.tenancy(facts.name).facts
        world.set_namespace(
            type(facts)(facts.name, {**known.labels, **facts.labels}, {**known.annotations, **facts.annotations})
        )
    for triple in collected.priority_classes:
        world.set_priority_class(triple)
    for add in collected.devices:
        add(world)


def evaluated(
    entries: Iterable[WorkloadResult | Item],
    collected: Collected,
    opened: ReviewWorld,
    *,
    requester: Requester,
    now_text: str,
) -> Review:
    """Return the review of manifests on a world, each charged before the next; `entries` are those of `collected`."""
    evaluator = Evaluator(
        opened.world,
        related=collected.related(opened.limit_ranges),
        requester=requester,
        room_is_known=opened.is_room_known,
        now_text=now_text,
    )
    found = [evaluator.evaluate(each) if isinstance(each, Item) else each for each in entries]
    results = tuple(each for each in found if each is not None)
    return Review(results, opened.facts, len(found) - len(results), collected.skipped)


# Runs `fairgate review`: reads the manifests, evaluates them, writes the outputs.


ADMITTED: Final = 0
REFUSED: Final = 1
NOT_EVALUATED: Final = 2


def run(options: Options, against: WorldSource) -> int:
    """Run the review, write every output, and return the exit status."""
    with progress("Reading"):
        policy = choose_policy(options.policy, against)
        collected = collect(read_sources(options.sources, sys.stdin.buffer), namespace=options.namespace)
        opened = open_world(against, policy, collected, namespace=options.namespace)
    opened.coverage.print_note()
    if options.outputs[0].format is Format.REVIEW:
        return _answer(options, collected, opened)
    console, is_shown = Console(stderr=True), shows_progress()
    entries = track(collected.entries, "Evaluating", console=console, transient=True, disable=not is_shown)
    review = evaluated(entries, collected, opened, requester=Requester(options.user), now_text=_now_text())
    strictness = options.fail_on | options.allow
    status = _status(review, strictness)
    for each in options.outputs:
        each.write(_written(review, each, options, strictness))
    return status


def _status(review: Review, fail_on: Strictness) -> int:
    """Return the exit status: a refusal takes precedence over what could not be evaluated."""
    unknown = {
        id(result)
        for result in review.workloads
        if any(group.outcome is Outcome.SKIP and not is_allowed(group, fail_on) for group in result.pods)
    }
    certain = Review(tuple(result for result in review.workloads if id(result) not in unknown), review.world)
    if any(finding.level is Level.ERROR for finding in findings(certain, fail_on)):
        return REFUSED
    return NOT_EVALUATED if unknown else ADMITTED


def _written(review: Review, output: Output, options: Options, strictness: Strictness) -> str:
    writers: dict[Format, Callable[[], str]] = {
        Format.TABLE: lambda: to_table(
            review,
            strictness,
            width=output.width,
            is_colored=output.is_colored,
            with_patch=options.with_patch,
        ),
        Format.JSON: lambda: to_json(review),
        Format.YAML: lambda: to_yaml(review),
        Format.GITHUB: lambda: to_github(findings(review, strictness)),
        Format.SARIF: lambda: to_sarif(findings(review, strictness), docs_url=options.docs_url),
        Format.JUNIT: lambda: to_junit(review, strictness),
        Format.MARKDOWN: lambda: to_markdown(review, strictness, with_patch=options.with_patch),
    }
    return writers[output.format]()


def _answer(options: Options, collected: Collected, opened: ReviewWorld) -> int:
    """Write the answer to each AdmissionReview on a line; report everything else as a problem."""
    problems: list[str] = []

    def report(place: Place, problem: str) -> None:
        problems.append(f"{place.source}:{place.line}: {problem}")

    reviewed = {place for place, _ in collected.reviews}
    for entry in collected.entries:
        if isinstance(entry, WorkloadResult):
            report(entry.place, entry.pods[0].why)
        elif entry.place not in reviewed:
            report(entry.place, "not an AdmissionReview, so there is nothing to answer; omit -o review")
    answers = answer_reviews(
        collected.reviews,
        opened.world,
        room_is_known=opened.is_room_known,
        now_text=_now_text(),
        on_problem=report,
    )
    options.outputs[0].write("".join(f"{json.dumps(answer)}\n" for answer in answers))
    for problem in problems:
        click.echo(printable(problem), err=True)
    if not all(answer["response"]["allowed"] for answer in answers):
        return REFUSED
    return NOT_EVALUATED if problems else ADMITTED


def _now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
