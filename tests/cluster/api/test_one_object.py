"""Reads of one object: what is there, what is not, and what cannot be read."""

import json

import pytest

from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import ApiError, ClusterError, connect
from webhook.cluster.api.requests import find, pod_path, read

PODS = "/api/v1/pods"
PATH = pod_path("team-a", "p")


async def test_an_object_is_decoded_a_missing_one_is_none_and_others_are_errors(tmp_path):
    async with FakeApi().serving() as api, await connect(write_kubeconfig(tmp_path / "k", api.url)) as connection:
        assert await read(connection, PATH, json.loads, action="get pods") is None
        assert await find(connection, PATH, action="get pods") is None
        api.put(PODS, "p", namespace="team-a")
        found = await read(connection, PATH, json.loads, action="get pods")
        assert found["metadata"]["name"] == "p"
        with pytest.raises(ClusterError, match="cannot get pods: the response is not an object that can be read: "):
            await read(connection, PATH, int, action="get pods")
        api.faults["get"].append(Answer(403))
        with pytest.raises(ApiError) as refused:
            await read(connection, PATH, json.loads, action="get pods")
        assert refused.value.is_forbidden
