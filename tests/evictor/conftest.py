import pytest

from tests.cluster.book import write_kubeconfig
from tests.cluster.fake_api import FakeApi
from tests.evictor.stage import Stage
from webhook.cluster.client import connect


@pytest.fixture
async def stage(tmp_path):
    """A small cluster without scheduler and kubelet: what they would do, the test does."""
    async with (
        FakeApi(bookmark_seconds=0.5).serving() as api,
        await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as connection,
    ):
        yield Stage(api, connection)
