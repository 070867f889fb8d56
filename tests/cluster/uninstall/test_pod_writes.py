"""Many pods are patched at a bounded pace, and one that cannot be patched keeps none of the others."""

import asyncio
import json

import pytest

from tests.cluster.support.fake_api import Answer, Cut
from webhook.cluster.uninstall.removal import patch_pods
from webhook.cluster.uninstall.survey import Tempo
from webhook.kube.pod.waiting import MarkedPod

PODS = "/api/v1/pods"


def put(api, name):
    made = api.put(PODS, name, namespace="ns", spec={})
    return MarkedPod("ns", name, made["metadata"]["uid"], "")


def patch(pod):
    return json.dumps({"metadata": {"uid": pod.uid, "labels": {"done": "yes"}}}).encode()


async def patched(connection, pods, **tempo):
    return await patch_pods(connection, pods, patch, content_type="application/merge-patch+json", tempo=Tempo(**tempo))


def done(api):
    return sorted(key for key, each in api.objects[PODS].items() if each["metadata"].get("labels"))


async def test_pods_that_are_gone_or_were_made_again_are_no_error(api, connection):
    here, gone, again = put(api, "here"), put(api, "gone"), put(api, "again")
    api.delete(PODS, "gone", namespace="ns")
    api.delete(PODS, "again", namespace="ns")
    put(api, "again")
    failed = await patched(connection, [here, gone, again])
    assert done(api) == ["ns/here"]
    assert [each.partition(":")[0] for each in failed] == ["ns/again"], "it is looked at again by its caller"


@pytest.mark.parametrize("fault", [Answer(429, retry_after="3"), Answer(500), Cut(is_carried_out=False)])
async def test_a_pod_is_tried_again_after_a_failure_that_may_pass(api, connection, fault):
    pod = put(api, "p")
    api.faults["patch"].append(fault)
    assert await patched(connection, [pod]) == []
    assert done(api) == ["ns/p"]


async def test_one_that_fails_for_good_is_named_and_the_others_are_done(api, connection):
    pods = [put(api, f"p{number}") for number in range(40)]
    api.faults["patch /api/v1/namespaces/ns/pods/p7"].extend([Answer(500)] * 9)
    [failed] = await patched(connection, pods)
    assert failed.startswith("ns/p7: cannot patch pods: 500")
    assert len(done(api)) == 39


async def test_so_many_pods_are_patched_in_a_second(api, connection):
    pods = [put(api, f"p{number}") for number in range(60)]
    began = asyncio.get_running_loop().time()
    assert await patched(connection, pods, at_once=10, pods_per_second=5.0) == []
    assert asyncio.get_running_loop().time() - began >= (60 - 10 - 1) / 5
