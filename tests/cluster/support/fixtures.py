"""Pytest plugin: a fake API server, and a connection to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import ApiConnection, connect


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi().serving() as server:
        yield server


@pytest.fixture
async def connection(api: FakeApi, tmp_path: Path) -> AsyncIterator[ApiConnection]:
    async with await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as opened:
        yield opened
