"""Unlimited refusals do not affect others: few Events, few reads, little memory, and other owners get their Events."""

import asyncio
import json
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from tests.attacks.shapes import MIB
from tests.cases.test_cases import open_reviewer, pod, review
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import FAST, until, write_kubeconfig
from tests.server.support.releases import A, Recorder, staged
from webhook.cluster.api.client import connect
from webhook.cluster.writes.events import OWNER_BURST, OWNER_WAITING, STEPS, EventWriter, OwnerEventQueue, OwnerLookup

EVENTS = "/api/v1/events"
PODS_OF_JOB = 100
TEAMS = [{"name": name, "namespaces": [name], "gpus": {"guaranteed": 8, "limit": 8}} for name in ("greedy", "honest")]
CASE = {"policy": {"teams": TEAMS}, "nodes": {"n0": {"allocatable": {"nvidia.com/gpu": "8"}}}}
REFUSALS = 500


def asked(number, *, namespace="greedy", **owner):
    """A pod over the limit, whose controller is said to exist."""
    forged = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"r{number}",
        "uid": f"u{number}",
        "controller": True,
    }
    metadata = {"namespace": namespace, "name": f"p{number}", "ownerReferences": [forged | owner]}
    return review(pod({"gpus": 9, "metadata": metadata}), uid=f"r{number}", requester="mallory")


@asynccontextmanager
async def served(folder):
    """A webhook that writes Events on owners, through a real writer and a fake API server."""
    async with FakeApi().serving() as api, await connect(write_kubeconfig(folder / "k", api.url)) as connection:
        writer = EventWriter(connection, component="fairgate", instance="fairgate-0", pace=FAST)
        queue = OwnerEventQueue(OwnerLookup(connection), writer)
        reviewer = await asyncio.to_thread(open_reviewer, CASE, folder, notify_owner=queue.take)
        tasks = [asyncio.create_task(writer.run()), asyncio.create_task(queue.run())]
        try:
            yield reviewer, api, writer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def refuse(reviewer, body):
    answer = reviewer.mutate(body)
    assert not json.loads(answer.body)["response"]["allowed"]


async def test_unlimited_forged_owners_cause_few_requests_and_others_get_their_events(tmp_path):
    async with served(tmp_path) as (reviewer, api, writer):
        for number in range(REFUSALS):
            refuse(reviewer, asked(number))
        refuse(reviewer, asked(0, namespace="honest"))
        await until(lambda: any(event["metadata"]["namespace"] == "honest" for event in api.objects[EVENTS].values()))
        await until(lambda: writer.written >= OWNER_BURST)
        assert writer.held_back >= REFUSALS - OWNER_WAITING - OWNER_BURST
        assert len(api.asked) <= (OWNER_BURST + OWNER_WAITING) * (1 + STEPS)


async def test_unlimited_refusals_of_one_owner_are_one_event(tmp_path):
    async with served(tmp_path) as (reviewer, api, writer):
        for _ in range(REFUSALS):
            refuse(reviewer, asked(1))
        await until(lambda: writer.written)
        [event] = api.objects[EVENTS].values()
    assert event["count"] == REFUSALS
    assert len(api.asked) <= 2


@pytest.mark.parametrize("field", ["name", "uid", "kind", "apiVersion"])
async def test_a_large_owner_is_not_stored(tmp_path, field):
    async with served(tmp_path) as (reviewer, api, writer):
        body = asked(1, **{field: "x" * (MIB // 8)})
        refuse(reviewer, body)
        tracemalloc.start()
        for _ in range(OWNER_WAITING):
            refuse(reviewer, body)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < MIB
        assert (writer.written, api.asked) == (0, [])


async def test_many_pods_in_line_make_one_event_on_their_owner(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        for number in range(PODS_OF_JOB):
            stage.queue(f"p{number}", text="waits: in the queue", controller=("Job", "train"))
        await until(lambda: len(Recorder.owners) == PODS_OF_JOB)
        writer = EventWriter(stage.connection, component="fairgate", instance="fairgate-0", pace=FAST)
        owners = OwnerEventQueue(OwnerLookup(stage.connection), writer)
        tasks = [asyncio.create_task(each) for each in (owners.run(), writer.run())]
        for notice in Recorder.owners:
            owners.take(notice)
        await until(lambda: writer.written)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        [event] = stage.api.objects[EVENTS].values()
    assert (event["count"], event["involvedObject"]["name"], event["type"]) == (PODS_OF_JOB, "train", "Normal")
    assert sum("/events" in each.path for each in stage.api.asked) <= 2
