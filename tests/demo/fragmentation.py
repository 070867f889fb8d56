"""The second scenario: enough GPUs, but not on one node."""

from __future__ import annotations

from collections.abc import Sequence

from tests.demo.picture import GpuPod
from tests.demo.scenario import Facts, Scenario
from tests.demo.stage import TEAM_A, TEAM_B, DemoCluster

SMALL = "GPUs used on the four nodes"
LARGE = "the pod of 8 GPUs"
NODES = 4


def _without(demo: DemoCluster) -> Facts:
    demo.create(TEAM_A, "small")
    small = demo.wait_for_usage({TEAM_A: 18})
    demo.create(TEAM_B, "large")
    demo.wait_for_usage({TEAM_A: 18}, waiting={TEAM_B: 8})
    demo.output.outcome("22 GPUs are free, and no node has 8 of them. The large pod waits.")
    return {SMALL: _spread(small), LARGE: "waits"}


def _within(demo: DemoCluster) -> Facts:
    demo.create(TEAM_A, "small")
    small = demo.wait_for_usage({TEAM_A: 18})
    demo.create(TEAM_B, "large")
    demo.wait_for_usage({TEAM_A: 18, TEAM_B: 8})
    demo.output.outcome("The same pods on two nodes instead of four. The large pod runs.")
    return {SMALL: _spread(small), LARGE: "runs"}


def _spread(pods: Sequence[GpuPod]) -> str:
    """Return the GPUs in use on each node, the fullest first."""
    by_node = sorted((sum(p.gpus for p in pods if p.node == node) for node in {p.node for p in pods}), reverse=True)
    return "/".join(map(str, [*by_node, *[0] * NODES][:NODES]))


SCENARIO = Scenario(
    title="2. Fragmentation",
    story="Team A starts 6 pods of 3 GPUs. Then team B starts one pod of 8, which must be on one node.",
    policy="even",
    without=_without,
    within=_within,
)
