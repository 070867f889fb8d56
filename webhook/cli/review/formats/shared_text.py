"""Texts that the formats for people share: the summary, the world, and what a patch changes."""

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from webhook.cli.formatting import plural, plural_gpus, span
from webhook.cli.review.results import OUTCOMES, WORDS, PodGroup, Review, WorkloadResult, WorldFacts
from webhook.core.model.text import printable


def summary(review: Review) -> str:
    """Return the number of workloads by outcome, and their total request."""
    concerned = [result for result in review.workloads if result.asks_gpus]
    numbers = {outcome: sum(1 for result in concerned if result.outcome is outcome) for outcome in OUTCOMES}
    outcomes = ", ".join(f"{number} {WORDS[outcome]}" for outcome, number in numbers.items() if number) or "none"
    gpus = plural_gpus(sum(group.gpus for result in concerned for group in result.pods))
    rest = [
        f"{number} {what}"
        for number, what in (
            (len(review.workloads) - len(concerned), "without GPUs"),
            (review.others, "without pods"),
            (review.skipped, "not Kubernetes objects"),
        )
        if number
    ]
    others = f"; other documents: {', '.join(rest)}" if rest else ""
    return f"{plural(len(concerned), 'GPU workload')}: {outcomes}; {gpus} requested{others}"


def world(facts: WorldFacts) -> str:
    """Return a line with the world of the review, its age and size."""
    source = {
        "empty": "no world: limits only, with nothing used and unlimited capacity",
        "file": f"world {facts.name}, {span(facts.age_seconds or 0)} old",
        "cluster": f"the live cluster of {facts.name}",
    }[facts.source]
    size = "" if facts.source == "empty" else f": {plural(facts.nodes, 'node')}, {plural(facts.pods, 'pod')}"
    return f"reviewed against {source}{size}; policy {facts.policy}"


def nodes(group: PodGroup, *, most: int = 3) -> str:
    """Return the first choices, and the number of further ones."""
    more = len(group.nodes) - most
    return ", ".join(group.nodes[:most]) + (f" and {more} more" if more > 0 else "")


def diff(result: WorkloadResult, group: PodGroup) -> str:
    """Return Fairgate's changes to the first pod of a group, as a unified diff of YAML."""
    if group.patch is None:
        return ""
    name = printable(f"{result.title}{f' ({group.role})' if group.role else ''}")
    before, after = _yaml(group.patch.before), _yaml(group.patch.after)
    lines = difflib.unified_diff(before, after, f"{name}, as written", f"{name}, admitted", lineterm="", n=2)
    return "\n".join(map(printable, lines))


def _yaml(pod: Mapping[str, Any]) -> list[str]:
    return yaml.safe_dump(dict(pod), sort_keys=False, allow_unicode=True, width=1000).splitlines()
