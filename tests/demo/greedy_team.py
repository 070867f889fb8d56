"""The first scenario: one team requests all GPUs at once."""

from __future__ import annotations

from tests.demo.scenario import Facts, Scenario
from tests.demo.stage import TEAM_A, TEAM_B, DemoCluster

SHARES = "GPUs of team A and of team B"
MORE = "team A asks for one GPU more"


def _without(demo: DemoCluster) -> Facts:
    demo.create(TEAM_A, "workers")
    demo.wait_for_usage({TEAM_A: 40})
    demo.create(TEAM_B, "train")
    demo.wait_for_usage({TEAM_A: 40}, waiting={TEAM_B: 20})
    demo.create(TEAM_A, "one")
    demo.output.outcome("Team A has all 40 GPUs. Team B has none, and waits until team A is done.")
    return _facts(demo, more="accepted, waits")


def _within(demo: DemoCluster) -> Facts:
    demo.create(TEAM_A, "workers")
    demo.wait_for_usage({TEAM_A: 20})
    demo.output.say("kubectl warns at once that the Deployment can never run completely; it gets 20 of its 40 pods.")
    demo.create(TEAM_B, "train")
    demo.wait_for_usage({TEAM_A: 20, TEAM_B: 20})
    refused = demo.create(TEAM_A, "one")
    assert "exceeded quota: team a: requested 1, limit 20, used 20" in refused.stderr, refused
    demo.output.outcome("Team A's 21st GPU is refused, with usage and largest holders. Team B has all of its 20.")
    return _facts(demo, more="refused, with the reason")


def _facts(demo: DemoCluster, *, more: str) -> Facts:
    sums = [sum(p.gpus for p in demo.pods() if p.node and p.namespace == team) for team in (TEAM_A, TEAM_B)]
    return {SHARES: "{} and {}".format(*sums), MORE: more}


SCENARIO = Scenario(
    title="1. The greedy team",
    story="Each team's share is 20 of the 40 GPUs. Team A starts 40 workers of 1 GPU; then team B starts 20 pods of "
    "1 GPU.",
    policy="even",
    without=_without,
    within=_within,
)
