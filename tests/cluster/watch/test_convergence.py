"""After any history with any faults, the sink equals the server. On uvloop, as in production."""

import asyncio
import tempfile
from pathlib import Path

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.support.fake_api import Answer, Body, CutMidLine, End, ErrorEvent, FakeApi, Fault, Silent
from tests.cluster.support.stores import FAST, PODS, Book, running, truth, until, write_kubeconfig
from tests.examples import examples
from webhook.cluster.api.client import connect
from webhook.cluster.watch.watch import Watch

NAMES = ("a", "b", "c", "d", "e", "f", "g")
FAULTS = (Answer(500), Answer(410), Answer(401), CutMidLine(), Silent(), End(), ErrorEvent(410), ErrorEvent(500))

changes = st.tuples(
    st.sampled_from(("put", "end", "delete", "replace")), st.sampled_from(NAMES), st.integers(min_value=0, max_value=3)
)
faults = st.one_of(
    st.tuples(st.just("disturb"), st.sampled_from((CutMidLine(), Silent(), End(), ErrorEvent(410), Body(b"")))),
    st.tuples(st.sampled_from(("list", "page")), st.sampled_from((Answer(500), Answer(410), Answer(401)))),
    st.tuples(st.sampled_from(("watch", "stream")), st.sampled_from(FAULTS)),
    st.just(("compact",)),
)
pauses = st.tuples(st.just("pause"), st.integers(min_value=0, max_value=5))
histories = st.lists(st.one_of(changes, changes, faults, pauses), max_size=30)


@examples(25)
@given(st.lists(changes, max_size=8), histories, st.booleans())
def test_the_sink_ends_equal_to_the_server(before, history, streams_lists):
    uvloop.run(live(before, history, streams_lists=streams_lists))


async def live(before, history, *, streams_lists):
    book = Book()
    api = FakeApi(bookmark_seconds=0.01, streams_lists=streams_lists)
    for change in before:
        apply(api, change)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        async with api.serving(), await connect(write_kubeconfig(kubeconfig, api.url)) as connection:
            watch = Watch(connection, book.kind(), pace=FAST)
            async with running(watch):
                for step in history:
                    match step:
                        case ("pause", milliseconds):
                            await asyncio.sleep(milliseconds / 1000)
                        case ("compact",):
                            api.forget_history()
                        case ("disturb", fault):
                            api.disturb(fault)
                        case ("list" | "page" | "watch" | "stream" as verb, fault):
                            api.faults[verb].append(fault)
                        case _:
                            apply(api, step)
                await until(lambda: watch.synced and book.held == truth(api))
                # It must also stay so once every fault that was ordered has been met.
                await asyncio.sleep(0.01)
                await until(lambda: book.held == truth(api))


def apply(api: FakeApi, change: tuple[str, str, int] | tuple[str, Fault]) -> None:
    action, name, gpus = change
    exists = f"x/{name}" in api.objects[PODS]
    if action in {"delete", "replace"} and exists:
        api.delete(PODS, name, namespace="x")
    if action != "delete":
        status = {"phase": "Succeeded" if action == "end" else "Running"}
        api.put(PODS, name, namespace="x", spec={"gpus": gpus}, status=status)
