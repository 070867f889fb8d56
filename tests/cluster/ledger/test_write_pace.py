"""How long a replica pauses between its writes of one ledger."""

import asyncio

import pytest

from webhook.cluster.ledger.write_pace import WritePace


async def seconds_of(pause):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await pause
    return loop.time() - began


async def test_a_replica_that_writes_alone_does_not_pause():
    pace = WritePace()
    pace.wrote(0.1)
    assert await seconds_of(pace.yield_to_rival(2.0)) == 0


async def test_beside_another_one_it_pauses_for_up_to_so_many_writes_for_a_second():
    pace = WritePace()
    pace.wrote(0.02)
    pace.saw_rival()
    pauses = [await seconds_of(pace.yield_to_rival(2.0)) for _ in range(20)]
    assert 0.02 < max(pauses) <= 0.04 + 1e-6
    await asyncio.sleep(1)
    assert await seconds_of(pace.yield_to_rival(2.0)) == 0


async def test_a_slow_write_does_not_make_long_pauses():
    pace = WritePace()
    pace.wrote(3.0)
    pace.saw_rival()
    assert max([await seconds_of(pace.yield_to_rival(1.0)) for _ in range(20)]) <= 0.1 + 1e-6


@pytest.mark.parametrize(("failures", "most"), [(1, 0.05), (2, 0.1), (3, 0.2), (6, 1.0), (1000, 1.0)])
async def test_pauses_after_failures_double_up_to_a_second(failures, most):
    pauses = [await seconds_of(WritePace().back_off(failures)) for _ in range(20)]
    assert most / 2 - 1e-6 <= min(pauses)
    assert max(pauses) <= most + 1e-6
    assert len(set(pauses)) > 1
