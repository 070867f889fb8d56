"""Events on the topmost owner: found with few reads, added up, and limited in rate."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.cluster.support.fake_api import Answer, Cut
from tests.cluster.support.stores import FAST, until
from webhook.cluster.writes.events import (
    NAMESPACES,
    OWNER_BURST,
    OWNER_REFILL_SECONDS,
    OWNER_WAITING,
    STEPS,
    EventWriter,
    OwnerEvent,
    OwnerEventQueue,
    OwnerLookup,
)
from webhook.kube.objects.events import EventReason, ObjectRef

EVENTS, RS, DEPLOYMENTS = "/api/v1/events", "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"


def owned_by(kind, name, uid, api_version="apps/v1"):
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def put(api, path, name, kind, *owners, namespace="team-a", api_version="apps/v1"):
    made = api.put(path, name, namespace=namespace, metadata={"ownerReferences": list(owners)})
    return ObjectRef(kind, namespace, name, made["metadata"]["uid"], api_version)


def web(api):
    """A Deployment and its ReplicaSet."""
    top = put(api, DEPLOYMENTS, "web", "Deployment")
    [reference] = owned_by("Deployment", "web", top.uid)
    return top, put(api, RS, "web-1", "ReplicaSet", reference)


def refused(owner, text="no room", series="TeamLimitExceeded"):
    return OwnerEvent(owner, EventReason.REFUSED, text, series)


@asynccontextmanager
async def queueing(connection):
    writer = EventWriter(connection, component="fairgate", instance="fairgate-0", pace=FAST)
    queue = OwnerEventQueue(OwnerLookup(connection), writer)
    tasks = [asyncio.create_task(writer.run()), asyncio.create_task(queue.run())]
    try:
        yield queue, writer
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def kept(api):
    return list(api.objects[EVENTS].values())


async def test_an_event_of_a_replica_set_is_written_on_its_deployment(api, connection):
    top, direct = web(api)
    async with queueing(connection) as (queue, writer):
        queue.take(refused(direct))
        await until(lambda: writer.written)
    (event,) = kept(api)
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Refused", "no room")
    assert event["involvedObject"] == {
        "kind": "Deployment",
        "name": "web",
        "namespace": "team-a",
        "apiVersion": "apps/v1",
        "uid": top.uid,
    }
    assert (event["related"]["kind"], event["related"]["uid"]) == ("ReplicaSet", direct.uid)


async def test_kinds_that_users_create_are_topmost_and_not_read(api, connection):
    notebook = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "nb", "uid": "u-nb", "controller": True}
    stateful = put(api, "/apis/apps/v1/statefulsets", "nb", "StatefulSet", notebook)
    training = ObjectRef("PyTorchJob", "team-a", "train", "u-train", "kubeflow.org/v1")
    async with queueing(connection) as (queue, writer):
        queue.take(refused(stateful))
        queue.take(refused(training))
        await until(lambda: writer.written == 2)
    assert {event["involvedObject"]["kind"] for event in kept(api)} == {"Notebook", "PyTorchJob"}
    assert api.count("get") == 1


async def test_owners_are_read_once_and_only_their_metadata(api, connection):
    _, direct = web(api)
    async with queueing(connection) as (queue, writer):
        for number in range(3):
            queue.take(refused(direct, series=f"s{number}"))
        await until(lambda: writer.written == 3)
    reads = [asked for asked in api.asked if asked.verb == "get"]
    assert [asked.path.rpartition("/")[2] for asked in reads] == ["web-1", "web"]
    assert all("as=PartialObjectMetadata" in asked.headers["Accept"] for asked in reads)


async def test_a_flood_of_one_refusal_is_one_event_with_a_count_and_the_latest_text(api, connection):
    _, direct = web(api)
    async with queueing(connection) as (queue, writer):
        for number in range(1000):
            queue.take(refused(direct, f"used {number}"))
        await until(lambda: writer.written)
        queue.take(refused(direct, "used 1000"))
        await until(lambda: writer.written == 2)
    (event,) = kept(api)
    assert (event["count"], event["message"]) == (1001, "used 1000")
    assert (api.count("post"), api.count("patch")) == (1, 1)


async def test_a_second_replica_adds_to_the_count(api, connection):
    _, direct = web(api)
    for _ in range(2):
        async with queueing(connection) as (queue, writer):
            queue.take(refused(direct))
            queue.take(refused(direct))
            await until(lambda writer=writer: writer.written)
    assert [event["count"] for event in kept(api)] == [4]


@pytest.mark.parametrize(("status", "reads"), [(403, 1), (404, 1), (500, 2)])
async def test_if_an_owner_cannot_be_read_the_event_is_on_the_lower_object(api, connection, status, reads):
    _, direct = web(api)
    api.always["get"] = Answer(status)
    async with queueing(connection) as (queue, writer):
        queue.take(refused(direct))
        await until(lambda: writer.written)
        queue.take(refused(direct, series="other"))
        await until(lambda: writer.written == 2)
    assert {event["involvedObject"]["name"] for event in kept(api)} == {"web-1"}
    assert api.count("get") == reads, "a final refusal is not retried"


async def test_after_a_connection_error_an_owner_is_read_again(api, connection):
    _, direct = web(api)
    api.faults["get"].extend([Cut(is_carried_out=False)] * 2)  # the client tries a broken connection once more
    async with queueing(connection) as (queue, writer):
        queue.take(refused(direct))
        await until(lambda: writer.written)
        queue.take(refused(direct))
        await until(lambda: writer.written == 2)
    assert [event["involvedObject"]["name"] for event in kept(api)] == ["web-1", "web"]


async def test_a_cycle_of_owners_is_followed_for_a_bounded_number_of_steps(api, connection):
    first = put(api, RS, "a", "ReplicaSet", *owned_by("ReplicaSet", "b", "ub"))
    api.objects[RS]["team-a/b"] = {
        "metadata": {"name": "b", "uid": "ub", "ownerReferences": owned_by("ReplicaSet", "a", first.uid)}
    }
    finder = OwnerLookup(connection)
    await finder.top(first)
    assert finder.reads <= STEPS


async def test_one_namespace_cannot_delay_another_or_fill_the_memory(api, connection):
    async with queueing(connection) as (queue, writer):
        for number in range(OWNER_WAITING + 500):
            queue.take(refused(ObjectRef("Job", "greedy", f"j{number}", f"u{number}", "batch/v1")))
        assert writer.held_back == 500
        queue.take(refused(ObjectRef("Job", "honest", "train", "u", "batch/v1")))
        await until(lambda: any(event["metadata"]["namespace"] == "honest" for event in kept(api)))
        written = sum(event["metadata"]["namespace"] == "greedy" for event in kept(api))
        assert written <= 2


async def test_events_of_a_namespace_are_a_burst_and_then_one_by_one(api, connection):
    loop = asyncio.get_running_loop()
    async with queueing(connection) as (queue, writer):
        began = loop.time()
        for number in range(OWNER_BURST + 3):
            queue.take(refused(ObjectRef("Job", "greedy", f"j{number}", f"u{number}", "batch/v1")))
        await until(lambda: writer.written == OWNER_BURST + 3)
        assert loop.time() - began >= 2 * OWNER_REFILL_SECONDS
        reads = api.count("get")
    assert reads <= OWNER_BURST + 3


async def test_waiting_namespaces_are_bounded(connection):
    writer = EventWriter(connection, component="fairgate", instance="fairgate-0", pace=FAST)
    queue = OwnerEventQueue(OwnerLookup(connection), writer)
    job = ObjectRef("Job", "", "train", "u", "batch/v1")
    for number in range(NAMESPACES + 7):
        queue.take(refused(msgspec.structs.replace(job, namespace=f"n{number}")))
    assert writer.held_back == 7
