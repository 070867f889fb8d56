"""Elections against an API server that fails and loses responses.

A lease lasts three seconds where one must run out, and as long as in production where none may.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.cluster.support.fake_api import Answer, Slow
from tests.cluster.support.stores import until, write_kubeconfig
from webhook.cluster.api.client import connect
from webhook.cluster.writes.lease import Lease, Timing

LEASES = "/apis/coordination.k8s.io/v1/leases"
KEY = "fairgate/leader"
FAST = Timing(lease=3, renew_deadline=2.0, retry=0.03, jitter=0.1)
STEADY = Timing(retry=0.03, jitter=0.1)


class Work:
    """Records when it runs; `started` and `ended` are loop times."""

    def __init__(self):
        self.started: list[float] = []
        self.ended: list[float] = []

    @property
    def is_running(self):
        return len(self.started) > len(self.ended)

    async def __call__(self):
        self.started.append(asyncio.get_running_loop().time())
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def candidate(api, folder, name, *, timing=STEADY, **more):
    """A candidate with a connection of its own, as another process would have."""
    async with await connect(write_kubeconfig(folder / name, api.url)) as connection:
        lease = Lease(connection, namespace="fairgate", name="leader", identity=name, timing=timing, **more)
        work = Work()
        task = asyncio.create_task(lease.run(work))
        try:
            yield lease, work, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def kept(api):
    return api.objects[LEASES][KEY]["spec"]


def held_by_a_dead_process(api, *, seconds=1, renewed="2026-01-01T00:00:00.000000Z"):
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": seconds, "renewTime": renewed, "leaseTransitions": 4}
    api.put(LEASES, "leader", namespace="fairgate", spec=spec)


async def test_one_of_two_leads_and_releases_the_lease_when_it_stops(api, tmp_path):
    async with AsyncExitStack() as stack:
        one, first, task = await stack.enter_async_context(candidate(api, tmp_path, "one", timing=FAST))
        await until(lambda: first.is_running)
        two, second, _ = await stack.enter_async_context(candidate(api, tmp_path, "two", timing=FAST))
        await asyncio.sleep(FAST.lease + 0.3)
        assert one.is_leading
        assert not two.is_leading
        assert not second.started
        assert kept(api)["holderIdentity"] == "one"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        given_back = asyncio.get_running_loop().time()
        await until(lambda: second.is_running)
        assert second.started[0] - given_back < FAST.lease / 2  # not the whole lease
        assert not first.is_running
        assert kept(api)["holderIdentity"] == "two"
        assert kept(api)["leaseTransitions"] == 1


async def test_many_that_start_together_create_one_lease_and_have_one_leader(api, tmp_path):
    async with AsyncExitStack() as stack:
        ones = [await stack.enter_async_context(candidate(api, tmp_path, f"c{i}")) for i in range(6)]
        await until(lambda: any(work.is_running for _, work, _ in ones))
        await asyncio.sleep(0.5)
        assert sum(work.is_running for _, work, _ in ones) == 1
        assert sum(lease.is_leading for lease, _, _ in ones) == 1


async def test_a_dead_holder_is_waited_for_once_whatever_its_clock_was(api, tmp_path):
    """Its time of renewal is in the far future or past; only the unchanged record counts."""
    for renewed in ("2001-01-01T00:00:00.000000Z", "2077-01-01T00:00:00.000000Z"):
        held_by_a_dead_process(api, seconds=2, renewed=renewed)
        begun = asyncio.get_running_loop().time()
        async with candidate(api, tmp_path, "next") as (_, work, _):
            await until(lambda work=work: work.is_running)
            assert 2.0 <= work.started[0] - begun < 4.0
            assert kept(api)["leaseTransitions"] == 5


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_candidate_with_a_wrong_clock_does_not_take_a_valid_lease(api, tmp_path, minutes):
    async with AsyncExitStack() as stack:
        one, _, _ = await stack.enter_async_context(candidate(api, tmp_path, "one", timing=FAST))
        await until(lambda: one.is_leading)

        def clock():
            return datetime.now(UTC) + timedelta(minutes=minutes)

        _, second, _ = await stack.enter_async_context(candidate(api, tmp_path, "two", timing=FAST, clock=clock))
        await asyncio.sleep(FAST.lease + 0.5)
        assert one.is_leading
        assert one.terms == 1
        assert not second.started


async def test_a_leader_without_an_api_server_stops_before_another_may_start(api, tmp_path):
    async with AsyncExitStack() as stack:
        _, first, _ = await stack.enter_async_context(candidate(api, tmp_path, "one", timing=FAST))
        await until(lambda: first.is_running)
        _, second, _ = await stack.enter_async_context(candidate(api, tmp_path, "two", timing=FAST))
        await asyncio.sleep(0.1)
        api.always["patch"] = Slow(30)
        await until(lambda: first.ended)
        del api.always["patch"]
        await until(lambda: first.is_running or second.is_running)
        if second.started:
            assert first.ended[0] < second.started[0]


async def test_a_leader_survives_errors_that_are_shorter_than_its_deadline(api, tmp_path):
    async with candidate(api, tmp_path, "one") as (lease, work, _):
        await until(lambda: work.is_running)
        api.faults["patch"].extend([Answer(500), Answer(429, "1"), Answer(503)])
        await until(lambda: not api.faults["patch"] and lease.problem is None)
        assert work.is_running
        assert lease.terms == 1


async def test_a_renewal_without_a_response_is_recognized_as_own(api, tmp_path):
    async with candidate(api, tmp_path, "one") as (lease, work, _):
        await until(lambda: work.is_running)
        spec = kept(api) | {"renewTime": "2026-01-01T00:00:01.000000Z"}
        api.put(LEASES, "leader", namespace="fairgate", spec=spec)  # written, but the leader got no response
        await until(lambda: kept(api)["renewTime"] != spec["renewTime"])
        assert lease.terms == 1
        assert work.is_running


async def test_a_leader_that_finds_another_holder_stops_at_once(api, tmp_path):
    async with candidate(api, tmp_path, "one") as (lease, work, _):
        await until(lambda: work.is_running)
        held_by_a_dead_process(api)
        seized = asyncio.get_running_loop().time()
        await until(lambda: work.ended)
        assert work.ended[0] - seized < STEADY.renew_deadline / 2
        assert not lease.is_leading
        await until(lambda: lease.terms == 2)  # and is a candidate again


async def test_a_paused_leader_knows_that_it_no_longer_leads(api, tmp_path):
    """Nothing of the process runs while it is paused; the first check after it must return False."""
    async with candidate(api, tmp_path, "one", timing=FAST) as (lease, work, _):
        await until(lambda: work.is_running)
        asyncio.get_running_loop().advance(FAST.renew_deadline + 0.1)
        assert not lease.is_leading
        await until(lambda: work.ended)


async def test_a_deleted_lease_stays_valid_as_long_as_an_existing_one(api, tmp_path):
    held_by_a_dead_process(api)
    begun = asyncio.get_running_loop().time()
    async with candidate(api, tmp_path, "next") as (_, work, _):
        await until(lambda: api.count("get") >= 2)
        api.delete(LEASES, "leader", namespace="fairgate")
        await until(lambda: work.is_running)
        assert work.started[0] - begun >= 1.0


async def test_a_leader_recreates_a_deleted_lease(api, tmp_path):
    async with candidate(api, tmp_path, "one") as (lease, work, _):
        await until(lambda: work.is_running)
        api.delete(LEASES, "leader", namespace="fairgate")
        await until(lambda: KEY in api.objects[LEASES])
        assert work.is_running
        assert lease.terms == 1


async def test_other_fields_of_the_lease_are_kept(api, tmp_path):
    held_by_a_dead_process(api)
    api.objects[LEASES][KEY]["metadata"]["labels"] = {"team": "infra"}
    async with candidate(api, tmp_path, "next") as (_, work, _):
        await until(lambda: work.is_running)
        assert api.objects[LEASES][KEY]["metadata"]["labels"] == {"team": "infra"}


async def test_a_missing_right_is_logged_once_with_advice(api, tmp_path, caplog):
    api.always["get"] = Answer(403)
    async with candidate(api, tmp_path, "one") as (lease, work, _):
        await until(lambda: api.count("get") > 3)
        assert lease.problem is not None
        assert "RBAC must grant this user the verb get on leases" in lease.problem
        assert not work.started
    assert len([r for r in caplog.records if r.name == "webhook.cluster.writes.lease"]) == 1


async def test_a_failing_task_ends_the_run_with_its_exception_and_releases_the_lease(api, tmp_path):
    async def broken():
        raise RuntimeError("a bug")

    async with await connect(write_kubeconfig(tmp_path / "one", api.url)) as connection:
        lease = Lease(connection, namespace="fairgate", name="leader", identity="one", timing=STEADY)
        with pytest.raises(RuntimeError, match="a bug"):
            await lease.run(broken)
    assert kept(api)["holderIdentity"] == ""
