"""Listing objects once, over real HTTP."""

import pytest

from tests.cluster.book import write_kubeconfig
from tests.cluster.fake_api import Answer, FakeApi
from webhook.cluster import listing
from webhook.cluster.client import connect
from webhook.cluster.errors import ClusterError
from webhook.kube.worldobjects import WORLD_KINDS

PODS = next(kind for kind in WORLD_KINDS if kind.kind == "Pod")


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        yield server


@pytest.fixture
async def connection(api, tmp_path):
    async with await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as connection:
        yield connection


async def test_all_pages_are_read_and_each_object_says_what_it_is(api, connection, monkeypatch):
    monkeypatch.setattr(listing, "_PAGE_SIZE", "2")
    for number in range(5):
        api.put("/api/v1/pods", f"p{number}", namespace="vision", spec={})
    found = await listing.list_objects(connection, PODS)
    assert sorted(each["metadata"]["name"] for each in found) == [f"p{number}" for number in range(5)]
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "Pod")}
    assert len(api.asked) == 3


async def test_an_api_that_is_not_there_has_no_objects(api, connection):
    api.always["list"] = Answer(404)
    assert await listing.list_objects(connection, PODS) == []


async def test_a_refusal_is_told(api, connection):
    api.always["list"] = Answer(403)
    with pytest.raises(ClusterError, match=r"cannot list pods.*RBAC"):
        await listing.list_objects(connection, PODS)
