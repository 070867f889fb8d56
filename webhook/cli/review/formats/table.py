"""A table for terminals, with the findings below it."""

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from webhook.cli.review.findings import FailOn, Finding, Level, findings
from webhook.cli.review.formats import shared_text
from webhook.cli.review.results import WORDS, PodGroup, Review, WorkloadResult
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.core.model.amount import gpus_text
from webhook.core.model.decision import Outcome
from webhook.core.model.tier import Tier

_STYLES = {Outcome.ADMIT: "green", Outcome.QUEUE: "yellow", Outcome.DENY: "bold red", Outcome.SKIP: "magenta"}
_LEVELS = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
_ROOM_FOR_NODES = 110


def to_table(
    review: Review, fail_on: frozenset[FailOn], *, width: int, is_colored: bool, with_patch: bool = False
) -> str:
    """Return the review as a table of this width."""
    console = Screen(width=width, is_colored=is_colored)
    names_nodes = any(group.nodes for result in review.workloads for group in result.pods)
    table = _table(review, with_nodes=names_nodes and width >= _ROOM_FOR_NODES)
    if table.row_count:
        console.print(table, "")
    causes = findings(review, fail_on)
    for finding in causes:
        console.print(_cause(finding), soft_wrap=not is_colored)
    if causes:
        console.print()
    if with_patch:
        for result in review.workloads:
            for group in result.pods:
                _print_diff(console, shared_text.diff(result, group))
    console.print(Line(shared_text.summary(review)), soft_wrap=not is_colored)
    console.print(Line(shared_text.world(review.world)), soft_wrap=not is_colored)
    return console.text


def _table(review: Review, *, with_nodes: bool) -> Table:
    rows = [(result, group) for result in review.workloads for group in result.pods if group.asks_gpus and result.kind]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("outcome")
    table.add_column("workload", overflow="fold")
    if has_roles := any(group.role for _, group in rows):
        table.add_column("role", overflow="fold")
    for number in ("pods", "each", "GPUs"):
        table.add_column(number, justify="right")
    table.add_column("team", overflow="fold")
    table.add_column("tier")
    if with_nodes:
        table.add_column("first choices")
    before: WorkloadResult | None = None
    for result, group in rows:
        title = result.title if result is not before else ""
        role = [Line(group.role or "-")] if has_roles else []
        nodes = [Line(shared_text.nodes(group) or "-")] if with_nodes else []
        table.add_row(
            _outcome(group), Line(title), *role, *_numbers(group), Line(group.team or "-"), _tier(group), *nodes
        )
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


def _print_diff(console: Console, text: str) -> None:
    if text:
        diff = Syntax(text, "diff", theme="ansi_dark", word_wrap=True) if console.is_terminal else Text(text)
        console.print(diff, "")
