"""What a scenario of the demo is: a story that is played twice, and what is measured each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.demo.stage import Stage

Facts = Mapping[str, str]
"""What was seen, by what was asked."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story, and what of tests/demo/policies it needs; both halves answer the same questions, in the same order."""

    title: str
    story: str
    policy: str
    without: Callable[[Stage], Facts]
    within: Callable[[Stage], Facts]
