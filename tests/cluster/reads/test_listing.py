"""Listing objects once, over real HTTP."""

import time

import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import Book
from webhook.cluster.api.client import ClusterError
from webhook.cluster.reads import listing
from webhook.kube.watched.world_kinds import DEVICES, NAMESPACES, PODS

CLAIMS = next(kind for kind in DEVICES if kind.kind == "ResourceClaim")


async def test_all_pages_are_read_and_each_object_has_its_kind(api, connection, monkeypatch):
    monkeypatch.setattr(listing, "_PAGE_SIZE", "2")
    for number in range(5):
        api.put("/api/v1/pods", f"p{number}", namespace="vision", spec={})
    found = await listing.list_kind(connection, PODS)
    assert sorted(each["metadata"]["name"] for each in found) == [f"p{number}" for number in range(5)]
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "Pod")}
    assert len(api.asked) == 3


async def test_a_missing_api_has_no_objects(api, connection):
    api.always["list"] = Answer(404)
    assert await listing.list_kind(connection, PODS) == []


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_claims_are_read_in_the_version_that_the_server_has(api, connection, version):
    paths = {each: f"/apis/resource.k8s.io/{each}/resourceclaims" for each in ("v1", "v1beta2", "v1beta1")}
    api.put(paths[version], "c", namespace="vision", spec={})
    api.missing = {path for each, path in paths.items() if each != version}
    [found] = await listing.list_kind(connection, CLAIMS)
    assert (found["apiVersion"], found["kind"]) == (f"resource.k8s.io/{version}", "ResourceClaim")
    api.missing = {*paths.values()}
    assert await listing.list_kind(connection, CLAIMS) == []


async def test_an_api_error_is_raised(api, connection):
    api.always["list"] = Answer(403)
    with pytest.raises(ClusterError, match=r"cannot list pods.*RBAC"):
        await listing.list_kind(connection, PODS)


async def test_a_busy_server_is_retried_after_its_retry_after(api, connection):
    api.put("/api/v1/pods", "p", namespace="vision", spec={})
    api.faults["list"].extend([Answer(429, retry_after="1")] * 2)
    assert len(await listing.list_kind(connection, PODS)) == 1
    api.always["list"] = Answer(429, retry_after="1")
    with pytest.raises(ClusterError, match="429"):
        await listing.list_kind(connection, PODS)


async def test_one_namespace_is_read_by_name_and_the_server_time_is_known(api, connection):
    api.put("/api/v1/namespaces", "vision", labels={"a": "b"})
    [found] = await listing.list_kind(connection, NAMESPACES, path="/api/v1/namespaces/vision")
    assert (found["kind"], found["metadata"]["name"]) == ("Namespace", "vision")
    assert abs(connection.server_time - time.time()) < 3600


async def test_objects_are_applied_as_by_a_watch_and_malformed_ones_are_skipped(api, connection):
    book = Book()
    for name, gpus in (("a", 1), ("b", 0), ("c", 2)):
        api.put("/api/v1/pods", name, namespace="vision", spec={"gpus": gpus})
    api.put("/api/v1/pods", "d", namespace="vision", spec={"gpus": "what"})
    await listing.load(connection, book.kind())
    assert sorted(book.log) == ["set a=1", "set c=2"]
