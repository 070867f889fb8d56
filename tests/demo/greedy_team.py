"""The first scenario: one team asks for everything at once."""

from __future__ import annotations

from tests.demo.scenario import Facts, Scenario
from tests.demo.stage import TEAM_A, TEAM_B, Stage

SHARES = "GPUs of team A and of team B"
MORE = "team A asks for one GPU more"


def _without(stage: Stage) -> Facts:
    stage.create(TEAM_A, "workers")
    stage.settle({TEAM_A: 40})
    stage.create(TEAM_B, "train")
    stage.settle({TEAM_A: 40}, waiting={TEAM_B: 20})
    stage.create(TEAM_A, "one")
    stage.teller.outcome("Team A has all 40 GPUs. Team B has none, and waits until team A is done.")
    return _facts(stage, more="accepted, waits")


def _within(stage: Stage) -> Facts:
    stage.create(TEAM_A, "workers")
    stage.settle({TEAM_A: 20})
    stage.teller.say("The Deployment is told at once that it will never run as a whole, and gets 20 of its 40 pods.")
    stage.create(TEAM_B, "train")
    stage.settle({TEAM_A: 20, TEAM_B: 20})
    refused = stage.create(TEAM_A, "one")
    assert "exceeded quota: team a: requested 1, limit 20, used 20" in refused.stderr, refused
    stage.teller.outcome("Team A's 21st GPU is refused, with the sums and who holds them. Team B has all of its 20.")
    return _facts(stage, more="refused, with the reason")


def _facts(stage: Stage, *, more: str) -> Facts:
    sums = [sum(p.gpus for p in stage.pods() if p.node and p.namespace == team) for team in (TEAM_A, TEAM_B)]
    return {SHARES: "{} and {}".format(*sums), MORE: more}


SCENARIO = Scenario(
    title="1. The greedy team",
    story="Both teams have 20 of the 40 GPUs by agreement. Team A starts 40 workers of 1 GPU; then team B starts "
    "one of 20 pods of 1 GPU.",
    policy="even",
    without=_without,
    within=_within,
)
