"""GPU-seconds as metrics: what the record grew by while this process led, counted once."""

import asyncio
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from webhook.addons.history.gpu_time import MAX_NODES, EvictedGpus, GpuHolder, GpuTimeMetrics, NodeGpus
from webhook.core.explain.line_rows import Start
from webhook.core.explain.node_rows import ClusterUse

SECONDS, USED = "fairgate_gpu_seconds_total", "fairgate_node_gpus_used"
HELD = {"team": "team-a", "model": "A100", "tier": "guaranteed"}
HOLDER = GpuHolder(**HELD)


class Replica:
    """A process with a record of its own, which is the same in all of them."""

    def __init__(self, nodes=()):
        self.record = {HOLDER: 500.0}
        self.registry = CollectorRegistry()
        self.metrics = GpuTimeMetrics(self.registry)
        self.use = ClusterUse(gpus=8, held=4, nodes=2, partly=1, spread=4, beyond=1)
        self.metrics.watch(lambda: self.record, nodes=lambda: nodes, use=lambda: self.use)
        self.registry.register(self.metrics)

    async def leads(self, *, until):
        """Lead while the record grows to this."""
        leading = asyncio.create_task(self.metrics.run())
        await asyncio.sleep(0)
        self.record[HOLDER] = until
        leading.cancel()
        with suppress(asyncio.CancelledError):
            await leading

    def value(self, name, labels):
        return self.registry.get_sample_value(name, labels)


async def test_a_leader_counts_what_the_record_grows_by_during_its_terms():
    replica = Replica()
    assert replica.value(SECONDS, HELD) is None
    await replica.leads(until=620.0)
    assert replica.value(SECONDS, HELD) == 120
    replica.record[HOLDER] = 1000.0  # another replica leads, and counts
    assert replica.value(SECONDS, HELD) == 120
    await replica.leads(until=1020.0)
    assert replica.value(SECONDS, HELD) == 140


async def test_only_the_leader_exports_the_ratios_and_observes_the_waits_of_jobs():
    replica, start = Replica(), Start("5-8", 12.0)
    count = ("fairgate_job_wait_seconds_count", {"size": "5-8"})
    replica.metrics.started(start)
    assert replica.value("fairgate_allocation_ratio", {}) is None
    replica.metrics.begin()
    assert replica.value(*count) == 0
    replica.metrics.started(start)
    assert replica.value(*count) == 1
    assert replica.value("fairgate_job_wait_seconds_bucket", {"size": "5-8", "le": "60.0"}) == 1
    names = ("allocation", "node_fragmentation", "gang_beyond_fewest")
    assert [replica.value(f"fairgate_{name}_ratio", {}) for name in names] == [0.5, 0.5, 0.25]


def test_a_series_begins_at_zero_so_that_its_increase_is_whole():
    replica = Replica()
    replica.metrics.begin()
    assert replica.value(SECONDS, HELD) == 0
    replica.record[HOLDER] += 30
    assert replica.value(SECONDS, HELD) == 30


def test_the_work_of_evicted_pods_is_a_counter_of_its_own():
    replica, lost = Replica(), EvictedGpus("team-a", "lost")
    replica.record[lost] = 70.0
    replica.metrics.begin()
    replica.record[lost] += 30
    assert replica.value("fairgate_evicted_gpu_seconds_total", {"team": "team-a", "work": "lost"}) == 30
    assert replica.value(SECONDS, HELD) == 0


async def test_what_several_leaders_counted_adds_up():
    first, second = Replica(), Replica()
    await first.leads(until=560.0)
    second.record[HOLDER] = 560.0
    await second.leads(until=600.0)
    assert sum(each.value(SECONDS, HELD) for each in (first, second)) == 100


async def test_only_the_leader_exports_nodes():
    node = {"node": "n0", "model": "A100"}
    replica = Replica([NodeGpus("n0", "A100", 10.0, 4.0)])
    assert replica.value(USED, node) is None
    replica.metrics.begin()
    assert replica.value("fairgate_node_gpus_capacity", node) == 10
    assert replica.value(USED, node) == 4
    await replica.leads(until=501.0)
    assert replica.value(USED, node) is None


@pytest.mark.parametrize(("count", "want"), [(MAX_NODES, 1), (MAX_NODES + 1, None)])
def test_a_huge_cluster_gets_no_series_by_node(count, want):
    replica = Replica([NodeGpus(f"n{n}", "", 1.0, 1.0) for n in range(count)])
    replica.metrics.begin()
    assert replica.value(USED, {"node": "n0", "model": ""}) == want
