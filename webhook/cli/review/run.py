"""Carries a review out: read, judge, write. The composition of `fairgate review`."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import track

from webhook.cli.review.answers import answer_reviews
from webhook.cli.review.collect import Collected, collect
from webhook.cli.review.evaluator import Item, Session
from webhook.cli.review.findings import FailOn, Level, findings
from webhook.cli.review.formats.github import to_github
from webhook.cli.review.formats.junit import to_junit
from webhook.cli.review.formats.markdown import to_markdown
from webhook.cli.review.formats.sarif import to_sarif
from webhook.cli.review.formats.table import to_table
from webhook.cli.review.outputs import Format, Output
from webhook.cli.review.report import to_json, to_yaml
from webhook.cli.review.results import Judged, Place, Review
from webhook.cli.review.review_world import Opened, WorldSource, open_world
from webhook.cli.review.sources import read_sources
from webhook.cli.terminal import complain
from webhook.cli.world_source import WorldError, choose_policy
from webhook.core.model.decision import Outcome
from webhook.core.model.pod import Requester
from webhook.core.model.text import printable
from webhook.policy.problems import PolicyError, PolicyUnreadable

ADMITTED: Final = 0
REFUSED: Final = 1
NOT_JUDGED: Final = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for."""

    sources: tuple[str, ...]
    policy: Path | None
    world: WorldSource
    namespace: str
    user: str
    outputs: tuple[Output, ...]
    fail_on: frozenset[FailOn]
    with_patch: bool
    docs_url: str


def run(order: Order) -> int:
    """Review, write every output, and give the exit status."""
    shown = Console(stderr=True)
    try:
        with shown.status("Reading") if shown.is_terminal else nullcontext():
            policy = choose_policy(order.policy, order.world)
            collected = collect(read_sources(order.sources, sys.stdin.buffer), namespace=order.namespace)
            opened = open_world(order.world, policy, collected, namespace=order.namespace)
    except (PolicyError, PolicyUnreadable, WorldError) as error:
        problems = error.problems if isinstance(error, PolicyError) else (error,)
        for problem in problems:
            complain(problem)
        return NOT_JUDGED
    opened.coverage.tell()
    if order.outputs[0].format is Format.REVIEW:
        return _answer(order, collected, opened)
    review = _judge(order, collected, opened, shown)
    status = _status(review, order.fail_on)
    try:
        for output in order.outputs:
            output.write(_written(review, output, order))
    except OSError as error:
        complain(f"{error.filename}: cannot be written: {error.strerror}")
        return NOT_JUDGED
    return status


def _judge(order: Order, collected: Collected, opened: Opened, shown: Console) -> Review:
    session = Session(
        opened.world,
        related=collected.related,
        requester=Requester(order.user),
        room_is_known=opened.is_room_known,
        now_text=_now_text(),
    )
    judged: list[Judged] = []
    others = 0
    for entry in track(collected.entries, "Judging", console=shown, transient=True, disable=not shown.is_terminal):
        found = session.judge(entry) if isinstance(entry, Item) else entry
        if found is None:
            others += 1
        else:
            judged.append(found)
    return Review(tuple(judged), opened.facts, others, collected.skipped)


def _status(review: Review, fail_on: frozenset[FailOn]) -> int:
    """Find the exit status: a refusal is certain, so it outweighs what could not be judged."""
    unjudged = {id(judged) for judged in review.having(Outcome.SKIP)}
    certain = Review(tuple(judged for judged in review.workloads if id(judged) not in unjudged), review.world)
    if any(finding.level is Level.ERROR for finding in findings(certain, fail_on)):
        return REFUSED
    return NOT_JUDGED if unjudged else ADMITTED


def _written(review: Review, output: Output, order: Order) -> str:
    writers: dict[Format, Callable[[], str]] = {
        Format.TABLE: lambda: to_table(
            review,
            order.fail_on,
            width=output.width,
            is_colored=output.is_colored,
            with_patch=order.with_patch,
        ),
        Format.JSON: lambda: to_json(review),
        Format.YAML: lambda: to_yaml(review),
        Format.GITHUB: lambda: to_github(findings(review, order.fail_on)),
        Format.SARIF: lambda: to_sarif(findings(review, order.fail_on), docs_url=order.docs_url),
        Format.JUNIT: lambda: to_junit(review, order.fail_on),
        Format.MARKDOWN: lambda: to_markdown(review, order.fail_on, with_patch=order.with_patch),
    }
    return writers[output.format]()


def _answer(order: Order, collected: Collected, opened: Opened) -> int:
    """Write one AdmissionReview a line; say of everything else that it is none."""
    problems: list[str] = []

    def tell(place: Place, problem: str) -> None:
        problems.append(f"{place.source}:{place.line}: {problem}")

    reviewed = {place for place, _ in collected.reviews}
    for entry in collected.entries:
        if isinstance(entry, Judged):
            tell(entry.place, entry.pods[0].why)
        elif entry.place not in reviewed:
            tell(entry.place, "is no AdmissionReview, so there is nothing to answer; leave out -o review")
    answers = answer_reviews(
        collected.reviews,
        opened.world,
        room_is_known=opened.is_room_known,
        now_text=_now_text(),
        on_problem=tell,
    )
    order.outputs[0].write("".join(f"{json.dumps(answer)}\n" for answer in answers))
    for problem in problems:
        click.echo(printable(problem), err=True)
    if not all(answer["response"]["allowed"] for answer in answers):
        return REFUSED
    return NOT_JUDGED if problems else ADMITTED


def _now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
