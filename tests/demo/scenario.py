"""A scenario of the demo: it runs twice, and returns the same facts each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.demo.stage import DemoCluster

Facts = Mapping[str, str]
"""Results by their labels."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario with its policy of tests/demo/policies; both halves return the same facts, in the same order."""

    title: str
    story: str
    policy: str
    without: Callable[[DemoCluster], Facts]
    within: Callable[[DemoCluster], Facts]
