"""How long a replica pauses between its writes of one ledger."""

import asyncio

import pytest

from webhook.cluster.ledger.ledger_objects import WritePace


async def seconds_of(pause):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await pause
    return loop.time() - began


async def test_a_replica_that_writes_alone_does_not_pause():
    pace = WritePace()
    pace.wrote(0.1, charges=1)
    assert await seconds_of(pace.yield_to_rival(2.0)) == 0


async def test_beside_another_one_it_pauses_for_up_to_so_many_writes_for_a_second():
    pace = WritePace()
    pace.wrote(0.02, charges=1)
    pace.saw_rival()
    pauses = [await seconds_of(pace.yield_to_rival(2.0)) for _ in range(20)]
    assert 0.02 < max(pauses) <= 0.04 + 1e-3
    await asyncio.sleep(1)
    assert await seconds_of(pace.yield_to_rival(2.0)) == 0


async def test_a_slow_write_does_not_make_long_pauses():
    pace = WritePace()
    pace.wrote(3.0, charges=1)
    pace.saw_rival()
    assert max([await seconds_of(pace.yield_to_rival(1.0)) for _ in range(20)]) <= 0.1 + 1e-3


def none():
    return 0


async def after(writes, *, seconds=0.01, charges=4, apart=0.02):
    pace = WritePace()
    for _ in range(writes):
        await asyncio.sleep(apart)
        pace.wrote(seconds, charges=charges)
    return pace


async def test_the_first_writes_of_a_burst_come_without_a_pause():
    assert await seconds_of((await after(7)).gather(none)) == 0
    assert await seconds_of((await after(8)).gather(none)) == pytest.approx(0.08, abs=1e-3)


@pytest.mark.parametrize(("seconds", "want"), [(0.002, 0.016), (0.01, 0.08), (3.0, 0.1)])
async def test_while_charges_of_several_callers_are_written_often_more_of_them_share_a_write(seconds, want):
    pace = await after(8, seconds=seconds)
    assert await seconds_of(pace.gather(none)) == pytest.approx(want, abs=1e-3)
    assert await seconds_of(pace.gather(none)) == 0, "the pause begins with the end of the last write"


async def test_once_enough_wait_none_waits_for_more():
    pace, loop = await after(8), asyncio.get_running_loop()
    began = loop.time()
    assert await seconds_of(pace.gather(lambda: 8)) == 0
    took = await seconds_of(pace.gather(lambda: 8 if loop.time() >= began + 0.03 else 7))
    assert 0.03 <= took <= 0.041


async def test_beside_another_replica_that_writes_it_does_not_wait_for_more():
    pace = await after(8)
    pace.saw_rival()
    assert await seconds_of(pace.gather(none)) == 0


@pytest.mark.parametrize("how", [{"charges": 1}, {"charges": 0}, {"apart": 0.2}], ids=str)
async def test_neither_a_single_caller_nor_rare_writes_wait(how):
    assert await seconds_of((await after(20, **how)).gather(none)) == 0


@pytest.mark.parametrize(("failures", "most"), [(1, 0.05), (2, 0.1), (3, 0.2), (6, 1.0), (1000, 1.0)])
async def test_pauses_after_failures_double_up_to_a_second(failures, most):
    pauses = [await seconds_of(WritePace().back_off(failures)) for _ in range(20)]
    assert most / 2 - 1e-6 <= min(pauses)
    assert max(pauses) <= most + 1e-3
    assert len(set(pauses)) > 1
