import asyncio

import pytest

from tests.cluster.support.replica import Replica
from tests.cluster.support.stores import FAST, Book
from tests.virtual_time import VirtualTimeLoop
from webhook.cluster.watch.watch import Watch


def pytest_asyncio_loop_factories():
    """Do not wait for clocks: both ends of every connection are in the loop of the test."""
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(autouse=True)
async def no_leftover_tasks():
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()} == set()


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def watch(connection, book):
    return Watch(connection, book.kind(), pace=FAST)


@pytest.fixture
async def make(connection):
    made = []

    def replica(**more):
        made.append(Replica(connection, **more))
        return made[-1]

    yield replica
    for each in made:
        await each.ledger.close()


@pytest.fixture
def one(make):
    return make()


@pytest.fixture
def other(make):
    return make()
