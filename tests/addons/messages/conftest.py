import asyncio

import pytest

from tests.cluster.support.pki import Authority
from tests.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories():
    """Do not wait for clocks: both ends of every connection are in the loop of the test."""
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
async def no_leftover_tasks():
    before = asyncio.all_tasks()
    yield
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()} == set()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")
