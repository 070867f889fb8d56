"""The hub: changes reach every page once, viewers get their own rows, and slow or too many pages are dropped."""

import asyncio
import json

import pytest

from tests import builders as b
from tests.addons.page.support.pages import state_of
from tests.builders import core_node
from webhook.addons.page.live import hub as hubs
from webhook.addons.page.live.hub import BUFFERED, CLIENTS, CLIENTS_OF_ONE, Client, Hub, TooManyError
from webhook.addons.page.views.teams import EVERYTHING, Viewer
from webhook.core.model.amounts import NodeName


@pytest.fixture
async def shared():
    state = state_of()
    hub = Hub(state)
    await hub.publish_rows()
    return state, hub


def data(message):
    event, _, rest = message.decode().partition("\n")
    return event.removeprefix("event: "), json.loads(rest.removeprefix("data: "))


async def is_sent_nothing(client):
    waits = asyncio.create_task(client.next())
    for _ in range(5):
        await asyncio.sleep(0)
    return waits.cancel()


async def change(state, hub):
    """A node comes and goes: each time every page is sent that."""
    node = state.world.fleet.get(NodeName("gpu-3"))
    state.world.remove_node(node.name) if node else state.world.set_node(core_node("gpu-3"))
    state.touch(NodeName("gpu-3"))
    await hub.publish_rows()


async def test_a_change_of_a_node_is_sent_once_to_each_viewer_with_what_they_may_see(shared):
    state, hub = shared
    sees_all, nina = hub.join(EVERYTHING), hub.join(Viewer("n", frozenset({"nlp"})))
    state.world.remove_node(NodeName("gpu-3"))
    state.touch(NodeName("gpu-3"), NodeName("gpu-1"))
    await hub.publish_rows()
    assert data(await sees_all.next()) == ("rows", {"sequence": state.sequence, "rows": {"gpu-3": None}})
    assert data(await nina.next())[1]["rows"] == {"gpu-3": None}
    state.touch(NodeName("gpu-1"))
    await hub.publish_rows()
    assert await is_sent_nothing(sees_all), "a row that is as before is not sent"


@pytest.mark.parametrize("nodes", [False, True])
async def test_of_what_others_have_nothing_is_sent_and_of_own_pods_everything(shared, nodes):
    state, hub = shared
    nina = hub.join(Viewer("n", frozenset({"nlp"}), nodes=nodes))
    for pod in [pod for pod in state.world.pods() if pod.namespace != "nlp"]:
        state.world.remove_pod(pod.uid)
        state.touch(pod.node)
    await hub.publish_rows()
    assert await is_sent_nothing(nina), "not even that something changed"
    for pod in [pod for pod in state.world.pods() if pod.name == "chat"]:
        state.world.remove_pod(pod.uid)
        state.touch(pod.node)
    await hub.publish_rows()
    [(node, row)] = data(await nina.next())[1]["rows"].items()
    assert node == "t4-1"
    assert (row is None) is not nodes


async def test_a_page_learns_that_the_state_is_out_of_date_and_that_it_is_again_of_now(shared, monkeypatch):
    monkeypatch.setattr(hubs, "STALE_SECONDS", 0)
    state, hub = shared
    state.why_stale = lambda: "no event for 130 s"
    assert data(hub.hello()) == ("hello", {"sequence": state.sequence, "stale": "no event for 130 s"})
    stream, following = hub.join(EVERYTHING), asyncio.create_task(hub.run())
    assert data(await stream.next()) == ("stale", {"stale": "no event for 130 s"})
    state.why_stale = lambda: "no event for 140 s"
    for _ in range(5):
        await asyncio.sleep(0)
    state.why_stale = lambda: None
    assert data(await stream.next()) == ("stale", {"stale": ""}), "once for all that it lasts"
    following.cancel()


async def test_a_page_that_does_not_keep_up_is_dropped_and_no_other(shared):
    state, hub = shared
    slow, quick = hub.join(EVERYTHING), hub.join(EVERYTHING)
    for _ in range(BUFFERED + 1):
        await change(state, hub)
        await quick.next()
    assert slow.is_dropped
    assert not quick.is_dropped
    assert (hub.dropped, hub.clients) == (1, 1)
    assert await slow.next() == b""


async def test_at_the_end_every_stream_ends_at_once_though_nothing_waits_for_it(shared):
    state, hub = shared
    streams = [hub.join(EVERYTHING) for number in range(3)]
    await change(state, hub)
    await streams[0].next()
    waits = asyncio.create_task(streams[0].next())
    await asyncio.sleep(0)
    hub.drop_all()
    assert await waits == await streams[1].next() == b""


async def test_large_messages_drop_a_slow_page_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(hubs, "BUFFERED_BYTES", 1000)
    slow = Client(EVERYTHING)
    for _ in range(3):
        slow.put(b"x" * 400)
    assert slow.is_dropped


def joined(hub, person):
    try:
        return hub.join(Viewer(person, frozenset({"nlp"})))
    except TooManyError:
        return None


async def test_pages_without_end_are_refused(shared):
    _, hub = shared
    assert sum(joined(hub, "mallory") is not None for _ in range(100)) == CLIENTS_OF_ONE
    assert joined(hub, "alice") is not None


async def test_where_no_more_may_be_open_the_person_with_most_gives_one_up(shared):
    _, hub = shared
    persons = [f"person-{number // CLIENTS_OF_ONE}" for number in range(CLIENTS)]
    streams = [joined(hub, person) for person in persons]
    assert joined(hub, "alice") is not None
    assert [each.is_dropped for each in streams].count(True) == 1
    assert hub.clients == CLIENTS
    assert all(joined(hub, f"another-{number}") is not None for number in range(20))


async def test_service_accounts_of_a_namespace_are_one_person(shared):
    _, hub = shared
    names = [f"system:serviceaccount:evil:{number}" for number in range(100)]
    assert sum(joined(hub, name) is not None for name in names) == CLIENTS_OF_ONE


async def test_as_many_persons_as_streams_take_none_from_each_other(shared):
    _, hub = shared
    streams = [joined(hub, f"person-{number}") for number in range(CLIENTS)]
    assert joined(hub, "alice") is None
    assert not any(each.is_dropped for each in streams)


async def test_changes_are_gathered_and_sent_once(monkeypatch):
    monkeypatch.setattr(hubs, "GATHER_SECONDS", 0.01)
    state = state_of([b.node("n1", gpus=8)])
    hub = Hub(state)
    await hub.publish_rows()
    client = hub.join(EVERYTHING)
    running = asyncio.create_task(hub.run())
    for _ in range(500):
        state.touch(NodeName("n1"))
    async with asyncio.timeout(60):
        assert data(await client.next())[0] == "tick"
    assert await is_sent_nothing(client)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
