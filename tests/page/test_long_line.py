"""A line of 2,000 pods beside 5,000 nodes: its table is there before its likely starts."""

import asyncio
import time

import pytest

from tests.page.support.large_cluster import add_line, filled
from tests.page.support.pages import state_of
from webhook.files import Snapshots
from webhook.page.live.readable import COMPUTED, SharedLine

pytestmark = [pytest.mark.slow, pytest.mark.long]


async def test_a_line_of_2000_pods_is_there_before_its_likely_starts():
    state = filled(state_of([]))
    add_line(state, 2_000, now=int(time.time()))
    computed, line = asyncio.Event(), SharedLine(state, Snapshots())
    state.on_change = computed.set
    assert {row.pod.likely_start_unknown for row in (await line.line()).rows} == {COMPUTED}
    await computed.wait()
    assert COMPUTED not in {row.pod.likely_start_unknown for row in (await line.line()).rows}
