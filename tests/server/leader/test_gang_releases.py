"""The leader's releases of gangs against an API server over real HTTP: all are charged before any gate goes."""

import asyncio

from tests.cluster.support.fake_api import Answer
from tests.core.support import make
from tests.server.support.harness import until
from tests.server.support.releases import PODS, A, charged, staged
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge


def gated(stage, *names):
    return [name for name in names if stage.is_gated(name)]


async def test_a_gang_starts_once_its_last_member_has_come(tmp_path):
    async with staged(tmp_path) as stage:
        stage.queue("m0", 2, gang="g", size=2)
        await stage.looks()
        assert stage.is_gated("m0")
        assert not stage.listed()
        stage.queue("m1", 2, gang="g", size=2)
        await until(lambda: not gated(stage, "m0", "m1"))
        assert stage.world.usage(A).total == make.gpus(4)


async def test_a_gang_over_the_limit_is_charged_nothing_and_says_its_sum(tmp_path):
    async with staged(tmp_path, limit=5, guaranteed=5) as stage:
        stage.hold("holder", 2)
        for name in ("m0", "m1"):
            stage.queue(name, 2, gang="g", size=2)
        await until(lambda: "gang g needs 4 GPUs together; team team-a holds 2 of 5" in stage.text("m1"))
        assert gated(stage, "m0", "m1") == ["m0", "m1"]
        assert not stage.listed()


async def test_a_part_that_another_leader_charged_is_taken_back_until_the_gang_is_whole(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        for name in ("m0", "m1"):
            stage.queue(name, 2, gang="g", size=2)
        await until(lambda: len(list(stage.world.waiting.all())) == 2)
        stage.hold("holder", 1)
        await until(lambda: stage.world.usage(A).total == make.gpus(1))
        first = next(pod for pod in stage.world.waiting.all() if pod.pod.name == "m0")
        pod = first.pod._replace(team_label=A, tier_label="guaranteed")
        flight = make.flight(pod, Charge(A, Tier.GUARANTEED, make.gpus(2)), "n0")
        deadline = asyncio.get_running_loop().time() + 4
        await stage.ledger.charge_waiting(A, lambda: charged(flight), deadline=deadline, is_gone=lambda: False)
        assert stage.listed() == {"m0"}
        stage.lead()
        await until(lambda: not stage.listed())
        assert gated(stage, "m0", "m1") == ["m0", "m1"], "the limit has no room for both"
        stage.api.delete(PODS, "holder", namespace="team-a")
        await until(lambda: not gated(stage, "m0", "m1"))


async def test_a_member_whose_gate_could_not_be_removed_follows_alone(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.faults["patch /api/v1/namespaces/team-a/pods/m1"].append(Answer(503))
        for name in ("m0", "m1"):
            stage.queue(name, 2, gang="g", size=2)
        await until(lambda: not stage.is_gated("m0"))
        await until(lambda: not stage.is_gated("m1"))
        assert stage.world.usage(A).total == make.gpus(4)
