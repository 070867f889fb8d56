"""A fake API server, and a connection to it."""

import pytest

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import connect


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        yield server


@pytest.fixture
async def connection(api, tmp_path):
    async with await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as opened:
        yield opened
