"""GPU-seconds: what pods held while this process led, counted once, while pods are created and deleted."""

import asyncio
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from tests.core.support import make
from webhook.core.model.names import GpuModel, NodeName, TeamName
from webhook.core.model.tier import Tier
from webhook.core.world.occupancy import UsageKey
from webhook.observe.gpu_time import MAX_NODES, GpuTimeMetrics, NodeGpus
from webhook.server.leader.usage_sampler import AT_ONCE, SAMPLE_SECONDS, UsageSampler

N0 = NodeName("n0")
SECONDS = "fairgate_gpu_seconds_total"
HELD = {"team": "team-a", "model": "A100", "tier": "guaranteed"}


class Clock:
    """Does not move until a test sets it."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def world():
    return make.world(make.policy(), nodes=[make.node("n0", gpus=10, model=GpuModel("A100"))])


@pytest.fixture
def shown():
    registry = CollectorRegistry()
    registry.accounting = GpuTimeMetrics()
    registry.register(registry.accounting)
    return registry


async def led(world, accounting, clock, *, for_seconds):
    """Lead for so long, and stop."""
    sampling = asyncio.create_task(UsageSampler(world, accounting, monotonic=clock).run())
    for _ in range(2 + len(list(world.pods())) // AT_ONCE):
        await asyncio.sleep(0)
    clock.seconds += for_seconds
    sampling.cancel()
    with suppress(asyncio.CancelledError):
        await sampling


async def test_a_leader_counts_the_gpus_held_during_its_term(world, shown):
    clock = Clock()
    world.set_pod(make.resident(4, node=N0))
    await led(world, shown.accounting, clock, for_seconds=30)
    assert shown.get_sample_value(SECONDS, HELD) == 120
    clock.seconds += 1000  # another replica leads, and counts
    await led(world, shown.accounting, clock, for_seconds=5)
    assert shown.get_sample_value(SECONDS, HELD) == 140


async def test_a_series_begins_at_zero_so_that_its_increase_is_whole(world, shown):
    world.set_pod(make.resident(4, node=N0))
    await led(world, shown.accounting, Clock(), for_seconds=0)
    assert shown.get_sample_value(SECONDS, HELD) == 0


async def test_more_pods_than_one_turn_of_the_loop_handles_are_all_counted(world, shown):
    for _ in range(2 * AT_ONCE + 1):
        world.set_pod(make.resident(1, node=N0))
    await led(world, shown.accounting, Clock(), for_seconds=1)
    assert shown.get_sample_value(SECONDS, HELD) == 2 * AT_ONCE + 1


async def test_only_the_leader_exports_nodes(world, shown):
    world.set_pod(make.resident(4, node=N0))
    node = {"node": "n0", "model": "A100"}
    sampling = asyncio.create_task(UsageSampler(world, shown.accounting).run())
    await asyncio.sleep(SAMPLE_SECONDS / 100)
    assert shown.get_sample_value("fairgate_node_gpus_capacity", node) == 10
    assert shown.get_sample_value("fairgate_node_gpus_used", node) == 4
    sampling.cancel()
    with suppress(asyncio.CancelledError):
        await sampling
    assert shown.get_sample_value("fairgate_node_gpus_used", node) is None


def test_what_several_leaders_counted_adds_up(shown):
    holder = UsageKey(TeamName("team-a"), GpuModel("A100"), Tier.GUARANTEED)
    other = CollectorRegistry()
    accounting = GpuTimeMetrics()
    other.register(accounting)
    for each, seconds in ((shown.accounting, 60), (accounting, 40)):
        each.add({holder: make.gpus(0.5)}, seconds=seconds)
    assert sum(each.get_sample_value(SECONDS, HELD) for each in (shown, other)) == pytest.approx(50)


def test_a_huge_cluster_gets_no_series_by_node(shown):
    made = tuple(NodeGpus(NodeName(f"n{n}"), GpuModel(""), 1, 1) for n in range(MAX_NODES + 1))
    shown.accounting.set_nodes(made)
    assert shown.get_sample_value("fairgate_node_gpus_used", {"node": "n0", "model": ""}) is None
    shown.accounting.set_nodes(made[:-1])
    assert shown.get_sample_value("fairgate_node_gpus_used", {"node": "n0", "model": ""}) is not None
