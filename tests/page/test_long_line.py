"""A line of 2,000 pods beside 5,000 nodes: its table is there before its likely starts."""

import asyncio
import time
from dataclasses import replace

import msgspec
import pytest

from tests.page.support.pages import state_of, waiting
from tests.page.test_large_map import filled
from webhook.core.explain.likely_start import Run
from webhook.core.model.names import Uid
from webhook.kube.objects import objects
from webhook.kube.pod.waiting_pods import to_waiting
from webhook.page.live.line import COMPUTED, SharedLine
from webhook.snapshots import Snapshots

pytestmark = [pytest.mark.slow, pytest.mark.long]


async def test_a_line_of_2000_pods_is_there_before_its_likely_starts():
    state, now = filled(state_of([])), int(time.time())
    decoded = msgspec.json.decode(msgspec.json.encode(waiting("w", gpus=8)), type=objects.Pod)
    first = to_waiting(decoded, state.world.policy.resources)
    for number in range(2_000):
        named = first.pod._replace(uid=f"w{number}", name=f"w{number}")
        state.world.set_waiting(replace(first, pod=named))
        state.reading.runs.add(Run(Uid(f"old-{number}"), "nlp", now - 9_000, now - 5_000 - number))
    computed = asyncio.Event()
    line, start = SharedLine(state, Snapshots()), time.perf_counter()
    state.on_change = computed.set
    found = await line.line()
    table = time.perf_counter() - start
    assert {row.pod.likely_start_unknown for row in found.rows} == {COMPUTED}
    await computed.wait()
    print({"table": round(table, 1), "likely starts": round(time.perf_counter() - start, 1)})  # noqa: T201
    assert COMPUTED not in {row.pod.likely_start_unknown for row in (await line.line()).rows}
