"""Whether a ledger was written since a point in time."""

import asyncio

from webhook.cluster.ledger.ledger_objects import WriteFence


async def test_it_waits_for_a_write_that_was_sent_since():
    fence, now = WriteFence(), asyncio.get_running_loop().time()
    fence.note(now - 1)
    waiting = asyncio.create_task(fence.wait(since=now, deadline=now + 30))
    await asyncio.sleep(0)
    fence.note(now - 0.5)
    await asyncio.sleep(0)
    assert not waiting.done(), "it was sent before, so an earlier one of another process may still arrive"
    fence.note(now)
    assert await waiting
    assert fence.is_after(now)


async def test_without_such_a_write_it_ends_at_the_deadline():
    fence, now = WriteFence(), asyncio.get_running_loop().time()
    fence.note(now - 1)
    assert not await fence.wait(since=now, deadline=now)
    assert await fence.wait(since=now - 1, deadline=now), "that one was made"
