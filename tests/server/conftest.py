import asyncio

import pytest
import uvloop

from tests.server.support.harness import running
from tests.virtual_time import VirtualTimeLoop

ON_VIRTUAL_TIME = {"test_leader.py", "test_queue_releaser.py", "test_waiting_reasons.py"}


def pytest_asyncio_loop_factories(item):
    """Run these tests on the loop of production, or do not wait for clocks."""
    if item.path.name in ON_VIRTUAL_TIME:
        return {"virtual": VirtualTimeLoop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
async def no_task_is_left_behind():
    yield
    for _ in range(200):  # a connection with an unread body lingers for a second
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0.01)
    assert not left


@pytest.fixture
async def server(tmp_path):
    async with running(tmp_path) as server:
        yield server
