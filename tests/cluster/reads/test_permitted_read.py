"""As much of a kind as RBAC allows, without repeated requests."""

import asyncio

import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import until
from webhook.cluster.api.client import ApiError
from webhook.cluster.reads.listing import ReadScope, in_namespace, read_permitted


def forbidden(*paths):
    """A reader that is refused these paths, and the requests that it made."""
    asked = []

    async def read(path):
        asked.append(path)
        if path in paths:
            raise ApiError("forbidden", status=403)

    return read, asked


async def test_all_is_read_where_that_is_allowed():
    read, asked = forbidden()
    assert await read_permitted("/api/v1/pods", read, namespaces=["a"]) == ReadScope("pods", is_all=True)
    assert asked == ["/api/v1/pods"]


async def test_otherwise_the_namespaces_that_may_be_read():
    read, asked = forbidden("/api/v1/pods", "/api/v1/namespaces/b/pods")
    found = await read_permitted("/api/v1/pods", read, namespaces=["a", "b"])
    assert found == ReadScope("pods", is_all=False, namespaces=("a",))
    assert len(asked) == 3


async def test_cluster_scoped_kinds_are_omitted():
    read, asked = forbidden("/api/v1/nodes")
    assert await read_permitted("/api/v1/nodes", read, namespaces=["a"]) == ReadScope("nodes", is_all=False)
    assert asked == ["/api/v1/nodes"]


async def test_a_namespace_is_read_by_its_name():
    assert in_namespace("/api/v1/namespaces", "a") == "/api/v1/namespaces/a"
    assert in_namespace("/apis/resource.k8s.io/v1/resourceclaims", "a") == (
        "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims"
    )


async def test_other_failures_are_failures():
    async def read(_path):
        raise ApiError("unavailable", status=503)

    with pytest.raises(ApiError):
        await read_permitted("/api/v1/pods", read, namespaces=["a"])


async def test_a_watch_reports_a_missing_right(api, watch):
    api.always["stream"] = Answer(403)
    running = asyncio.create_task(watch.run())
    await until(lambda: watch.is_forbidden)
    del api.always["stream"]
    await watch.listed.wait()
    assert not watch.is_forbidden
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
