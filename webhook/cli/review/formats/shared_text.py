"""What the formats for people say in the same words: the sum of it all, the world, and what a patch changes."""

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from webhook.cli.formatting import age, plural, plural_gpus
from webhook.cli.review.results import OUTCOMES, WORDS, Judged, PodGroup, Review, WorldFacts
from webhook.core.model.text import printable


def summary(review: Review) -> str:
    """Say how many workloads fared how, and what they ask for."""
    concerned = [judged for judged in review.workloads if judged.asks_gpus]
    numbers = {outcome: sum(1 for judged in concerned if judged.outcome is outcome) for outcome in OUTCOMES}
    told = ", ".join(f"{number} {WORDS[outcome]}" for outcome, number in numbers.items() if number) or "none"
    gpus = plural_gpus(sum(group.gpus for judged in concerned for group in judged.pods))
    rest = [
        f"{what} {number}"
        for number, what in (
            (len(review.workloads) - len(concerned), "without GPUs"),
            (review.others, "without pods"),
            (review.skipped, "no Kubernetes objects"),
        )
        if number
    ]
    besides = f"; besides: {', '.join(rest)}" if rest else ""
    return f"{plural(len(concerned), 'GPU workload')}: {told}; {gpus} asked for{besides}"


def world(facts: WorldFacts) -> str:
    """Say what was judged against, and how old it is."""
    against = {
        "empty": "no world: limits only, nothing used, room taken for granted",
        "file": f"world {facts.name}, {age(facts.age_seconds or 0)} old",
        "cluster": f"the live cluster of {facts.name}",
    }[facts.source]
    known = "" if facts.source == "empty" else f": {plural(facts.nodes, 'node')}, {plural(facts.pods, 'pod')}"
    return f"judged against {against}{known}; policy {facts.policy}"


def nodes(group: PodGroup, *, most: int = 3) -> str:
    """Name the first choices, the rest by number."""
    more = len(group.nodes) - most
    return ", ".join(group.nodes[:most]) + (f" and {more} more" if more > 0 else "")


def diff(judged: Judged, group: PodGroup) -> str:
    """Show what Fairgate would change on the first pod of a group, as a unified diff of YAML."""
    if group.patch is None:
        return ""
    name = printable(f"{judged.title}{f' ({group.role})' if group.role else ''}")
    before, after = _yaml(group.patch.before), _yaml(group.patch.after)
    lines = difflib.unified_diff(before, after, f"{name}, as written", f"{name}, admitted", lineterm="", n=2)
    return "\n".join(map(printable, lines))


def _yaml(pod: Mapping[str, Any]) -> list[str]:
    return yaml.safe_dump(dict(pod), sort_keys=False, allow_unicode=True, width=1000).splitlines()
