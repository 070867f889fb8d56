import asyncio

import pytest
import uvloop

from tests.server.support.harness import running
from tests.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(item):
    """Run these tests on the loop of production; where both ends of all connections are theirs, wait for no clock."""
    if item.path.parent.name == "leader":
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
