import pytest

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.evictor.support.stage import Stage
from tests.virtual_time import VirtualTimeLoop
from webhook.cluster.api.client import connect


def pytest_asyncio_loop_factories():
    """Do not wait for clocks: both ends of every connection are in the loop of the test."""
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
async def stage(tmp_path):
    """A small cluster without scheduler and kubelet: the test acts in their place."""
    async with (
        FakeApi(bookmark_seconds=60).serving() as api,
        await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as connection,
    ):
        yield Stage(api, connection)
