"""The leader keeps room for pods that follow others of their gang, gives it to them, and ends it."""

import asyncio

import pytest

from tests import builders
from tests.core.support import make
from tests.server.support.harness import until
from tests.server.support.releases import PODS, TEAM_LEDGERS, A, staged
from webhook.core.line.gang_plans import EndedReservations
from webhook.core.line.gangs import GangTimeout
from webhook.core.model.amounts import GangId
from webhook.core.model.reasons import Statement

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
GANG = GangId("team-a/jobset.sigs.k8s.io/jobset-name=js")


def put_job_set(stage, *, pods=2, gpus=2):
    """A JobSet of one pod, and then so many others."""
    template = {"spec": builders.pod(gpus=gpus)["spec"]}
    jobs = [
        {"name": name, "replicas": count, "template": {"spec": {"template": template}}}
        for name, count in (("first", 1), ("then", pods))
    ]
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs}
    stage.api.put(JOB_SETS, "js", namespace="team-a", spec=spec, apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet")


def entries(stage):
    found = stage.api.objects[TEAM_LEDGERS].get("/team-a", {"ledger": {"inFlight": []}})
    return {entry["name"]: entry.get("gang", "") for entry in found["ledger"]["inFlight"]}


async def run_first(stage, *, pods=2):
    """Let the first pod start, with room for the others."""
    put_job_set(stage, pods=pods)
    stage.queue("first", 2, of="js")
    await until(lambda: not stage.is_gated("first"))
    await until(lambda: entries(stage) == {f"first-follower-{number}": GANG for number in range(pods)})


async def test_pods_that_follow_take_their_room_with_the_write_that_charges_them(tmp_path):
    async with staged(tmp_path, limit=6, guaranteed=6) as stage:
        await run_first(stage)
        assert stage.world.usage(A).total == make.gpus(6)
        sums = []
        stage.world.on_usage_changed, wake = lambda: sums.append(stage.world.usage(A).total), stage.releaser.wake
        for name in ("w0", "w1"):
            stage.queue(name, 2, of="js")
        wake()
        await until(lambda: not (stage.is_gated("w0") or stage.is_gated("w1")))
        await until(lambda: not stage.listed())
        assert stage.world.usage(A).total == make.gpus(6)
        assert max(sums) <= make.gpus(6)


async def test_room_ends_with_the_gang(tmp_path):
    async with staged(tmp_path, limit=6, guaranteed=6) as stage:
        await run_first(stage)
        stage.api.delete(PODS, "first", namespace="team-a")
        await until(lambda: not stage.listed())
        await until(lambda: stage.world.usage(A).total == 0)
        assert stage.releaser.counts.timed_out == {}


async def test_room_that_no_pod_comes_for_ends_with_an_event(tmp_path):
    async with staged(tmp_path, limit=6, guaranteed=6) as stage:
        await run_first(stage)
        stage.world.policy = make.policy(*stage.world.policy.teams)
        watch = stage.releaser._gangs
        watch._end(EndedReservations(GANG, tuple(stage.world.gang_reservations.of(GANG)), is_late=True))
        await until(lambda: not stage.listed())
        assert stage.releaser.counts.timed_out == {A: 1}
        (event,) = [each for each in stage.events if each.reason == "GangTimedOut"]
        assert (event.about.name, event.reason.type) == ("first", "Warning")
        assert event.message == "2 pods of its gang did not come within 5m: their GPUs are no longer reserved"


async def test_a_new_leader_goes_on_with_the_room_that_another_kept(tmp_path):
    async with staged(tmp_path, limit=6, guaranteed=6) as stage:
        await run_first(stage)
        await stage.resign()
        stage.queue("w0", 2, of="js")
        stage.lead()
        await until(lambda: not stage.is_gated("w0"))
        await until(lambda: entries(stage) == {"first-follower-1": GANG})


async def test_an_object_that_is_not_there_is_reported_once(tmp_path):
    async with staged(tmp_path) as stage:
        stage.queue("p", 1, of="gone")
        await until(lambda: not stage.is_gated("p"))
        texts = [each.message for each in stage.events if each.reason == "GangSizeUnknown"]
        want = "gang gone: JobSet gone is not there, or its kind is not installed: "
        assert texts == [f"{want}the pods that come without a pause are taken for the whole gang"]


async def test_a_gang_that_did_not_come_in_time_is_counted_and_reported(tmp_path):
    async with staged(tmp_path) as stage:
        stage.queue("p", 1, gang="g", size=2)
        await until(lambda: any(True for _ in stage.world.waiting.all()))
        (waiting,) = stage.world.waiting.all()
        await stage.resign()
        starts = stage.releaser._starts
        starts.entries.gangs.timeouts.append(GangTimeout(waiting, Statement("1 of 2 have come")))
        stage.releaser._gangs.update(starts)
        stage.releaser._gangs.update(starts)
        assert stage.releaser.counts.timed_out == {A: 1}
        assert [each.message for each in stage.events if each.reason == "GangTimedOut"] == ["1 of 2 have come"]
        stage.lead()


@pytest.mark.parametrize("pods", [1, 3])
async def test_without_room_for_all_none_starts(tmp_path, pods):
    async with staged(tmp_path, limit=6, guaranteed=6) as stage:
        put_job_set(stage, pods=pods)
        stage.hold("holder", 3)
        stage.queue("first", 2, of="js")
        await until(lambda: "gang js needs" in stage.text("first"))
        await asyncio.sleep(0)
        assert stage.is_gated("first")
        assert not stage.listed()
