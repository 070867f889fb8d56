import asyncio

import pytest

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.replica import Replica
from tests.cluster.support.stores import FAST, Book, write_kubeconfig
from tests.virtual_time import VirtualTimeLoop
from webhook.cluster.api.client import connect
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
async def api():
    async with FakeApi().serving() as server:
        yield server


@pytest.fixture
async def connection(api, tmp_path):
    async with await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as opened:
        yield opened


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
