"""Runs `fairgate review`: reads the manifests, evaluates them, writes the outputs."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.progress import track

from webhook.cli.options import shows_progress
from webhook.cli.review.answers import answer_reviews
from webhook.cli.review.collect import Collected, collect
from webhook.cli.review.command import Options
from webhook.cli.review.findings import FailOn, Level, findings
from webhook.cli.review.formats.github import to_github
from webhook.cli.review.formats.junit import to_junit
from webhook.cli.review.formats.markdown import to_markdown
from webhook.cli.review.formats.sarif import to_sarif
from webhook.cli.review.formats.table import to_table
from webhook.cli.review.outputs import Format, Output
from webhook.cli.review.report import to_json, to_yaml
from webhook.cli.review.results import Place, Review, WorkloadResult
from webhook.cli.review.review_world import ReviewWorld, WorldSource, evaluated, open_world
from webhook.cli.review.sources import read_sources
from webhook.cli.screen import progress
from webhook.cli.world_source import choose_policy
from webhook.core.model.decision import Outcome
from webhook.core.model.pod import Requester
from webhook.core.model.text import printable

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
    status = _status(review, options.fail_on)
    for output in options.outputs:
        output.write(_written(review, output, options))
    return status


def _status(review: Review, fail_on: frozenset[FailOn]) -> int:
    """Return the exit status: a refusal takes precedence over what could not be evaluated."""
    unknown = {id(result) for result in review.having(Outcome.SKIP)}
    certain = Review(tuple(result for result in review.workloads if id(result) not in unknown), review.world)
    if any(finding.level is Level.ERROR for finding in findings(certain, fail_on)):
        return REFUSED
    return NOT_EVALUATED if unknown else ADMITTED


def _written(review: Review, output: Output, options: Options) -> str:
    writers: dict[Format, Callable[[], str]] = {
        Format.TABLE: lambda: to_table(
            review,
            options.fail_on,
            width=output.width,
            is_colored=output.is_colored,
            with_patch=options.with_patch,
        ),
        Format.JSON: lambda: to_json(review),
        Format.YAML: lambda: to_yaml(review),
        Format.GITHUB: lambda: to_github(findings(review, options.fail_on)),
        Format.SARIF: lambda: to_sarif(findings(review, options.fail_on), docs_url=options.docs_url),
        Format.JUNIT: lambda: to_junit(review, options.fail_on),
        Format.MARKDOWN: lambda: to_markdown(review, options.fail_on, with_patch=options.with_patch),
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
