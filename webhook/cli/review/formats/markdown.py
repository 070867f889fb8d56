"""Markdown for a comment on a pull request, or for the summary of a CI job."""

from webhook.cli.review.findings import FailOn, findings
from webhook.cli.review.formats import shared_text
from webhook.cli.review.results import WORDS, PodGroup, Review, WorkloadResult
from webhook.core.model.amount import gpus_text
from webhook.core.model.decision import Outcome
from webhook.core.model.text import printable

_MARKS = {Outcome.ADMIT: "✅", Outcome.QUEUE: "⏳", Outcome.DENY: "❌", Outcome.SKIP: "❔"}
_HEADINGS = {
    Outcome.ADMIT: "all admitted",
    Outcome.QUEUE: "some would wait in line",
    Outcome.DENY: "some would be refused",
    Outcome.SKIP: "some could not be evaluated",
}


def to_markdown(review: Review, fail_on: frozenset[FailOn], *, with_patch: bool = False) -> str:
    """Return the review as Markdown for GitHub and GitLab."""
    lines = [f"### Fairgate: {_HEADINGS[review.outcome]}", ""]
    rows = [(result, group) for result in review.workloads for group in result.pods if group.asks_gpus and result.kind]
    if rows:
        lines += ["| | workload | role | pods | GPUs each | team | tier | first choices |"]
        lines += ["|---|---|---|--:|--:|---|---|---|"]
        lines += [_row(result, group) for result, group in rows]
        lines.append("")
    listed = findings(review, fail_on)
    for finding in listed:
        place = f"{_quoted(finding.source)}:{finding.line}"
        lines.append(f"- `{place}` **{finding.level}**: {_escaped(finding.text)}")
    lines += [""] if listed else []
    if with_patch:
        for result, group in rows:
            if text := shared_text.diff(result, group):
                lines += ["<details><summary>" + _escaped(result.title) + "</summary>", "", "````diff", text, "````"]
                lines += ["", "</details>", ""]
    lines += [
        _escaped(shared_text.summary(review)) + ".",
        "",
        f"<sub>{_escaped(shared_text.world(review.world))}</sub>",
    ]
    return "\n".join(lines) + "\n"


def _row(result: WorkloadResult, group: PodGroup) -> str:
    cells = (
        f"{_MARKS[group.outcome]} {WORDS[group.outcome]}",
        result.title,
        group.role,
        "?" if group.count is None else str(group.count),
        gpus_text(group.demand.gpus) if group.demand is not None and group.demand.gpus else "?",
        group.team or "",
        group.tier or "",
        shared_text.nodes(group),
    )
    return f"| {' | '.join(map(_escaped, cells))} |"


def _quoted(text: str) -> str:
    """Return a text that can stand between backquotes."""
    return printable(text).replace("`", "'")


def _escaped(text: str) -> str:
    text = printable(" ".join(text.split()))
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, f"\\{mark}")
    return text
