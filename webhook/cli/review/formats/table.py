"""A table for terminals, with the findings below it."""

from rich.syntax import Syntax
from rich.text import Text

from webhook.cli.grid import Column, Grid, listing, number
from webhook.cli.review.findings import FailOn, Finding, Level, findings
from webhook.cli.review.formats import shared_text
from webhook.cli.review.results import WORDS, PodGroup, Review, WorkloadResult
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.core.model.amount import gpus_text
from webhook.core.model.decision import Outcome
from webhook.core.model.tier import Tier

_STYLES = {Outcome.ADMIT: "green", Outcome.QUEUE: "yellow", Outcome.DENY: "bold red", Outcome.SKIP: "magenta"}
_DIFF = Syntax("", "diff", theme="ansi_dark")
_LEVELS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}


def to_table(
    review: Review, fail_on: frozenset[FailOn], *, width: int, is_colored: bool, with_patch: bool = False
) -> str:
    """Return the review as a table of this width."""
    screen = Screen(width=width, is_colored=is_colored)
    table = _table(review)
    if len(table):
        screen.show(table, "")
    causes = findings(review, fail_on)
    if causes:
        screen.show(*map(_cause, causes), "")
    if with_patch:
        for result in review.workloads:
            for group in result.pods:
                if text := shared_text.diff(result, group):
                    screen.show_whole(_DIFF.highlight(text), "")
    screen.show(Line(shared_text.summary(review)), Line(shared_text.world(review.world)))
    return screen.text


def _table(review: Review) -> Grid:
    rows = [(result, group) for result in review.workloads for group in result.pods if group.asks_gpus and result.kind]
    has_roles, with_nodes = any(group.role for _, group in rows), any(group.nodes for _, group in rows)
    role = [Column("role", goes=3)] if has_roles else []
    nodes = [listing("first choices", goes=1)] if with_nodes else []
    numbers = number("pods"), number("each", goes=2), number("GPUs")
    table = Grid("outcome", "workload", *role, *numbers, Column("team", goes=4), "tier", *nodes)
    before: WorkloadResult | None = None
    for result, group in rows:
        title = result.title if result is not before else ""
        roles = [Line(group.role or "-")] if has_roles else []
        choices = [Line(shared_text.nodes(group) or "-")] if with_nodes else []
        team = Line(group.team or "-")
        table.add_row(_outcome(group), Line(title), *roles, *_numbers(group), team, _tier(group), *choices)
        before = result
    return table


def _outcome(group: PodGroup) -> Text:
    return Line(WORDS[group.outcome], style=_STYLES[group.outcome])


def _numbers(group: PodGroup) -> list[Text]:
    count = "?" if group.count is None else str(group.count)
    is_known = group.demand is not None and group.demand.gpus > 0
    each = gpus_text(group.demand.gpus) if group.demand is not None and is_known else "?"
    gpus = gpus_text(group.gpus) if group.count is not None and is_known else "?"
    return [Line(count), Line(each), Line(gpus)]


def _tier(group: PodGroup) -> Text:
    return Line(group.tier or "-", style="yellow" if group.tier is Tier.PREEMPTIBLE else "")


def _cause(finding: Finding) -> Text:
    place = Line(f"{finding.source}:{finding.line}: ", style="bold")
    return place + Line(f"{finding.level}: ", style=_LEVELS[finding.level]) + Line(finding.text)
