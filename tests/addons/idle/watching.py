"""An evictor's search for idle GPUs, on the stage's cluster and a small Prometheus."""

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.addons.idle.made import rules
from tests.cluster.support.fake_prometheus import FakePrometheus
from tests.core.support import make
from tests.evictor.support.stage import PODS, Stage
from webhook.addons.idle.idle_gpus import IdleEvictions, IdleGpus
from webhook.addons.idle.metrics import IdleMetrics
from webhook.cluster.writes.events import OwnerLookup
from webhook.evictor.cluster_view import ClusterView
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import LineWriter, LogFormat, Logs

SINCE = "fairgate.dev/idle-since"
EVICT_AT = "fairgate.dev/evict-at"


class Watching:
    """An evictor that leads and looks."""

    def __init__(self, stage: Stage, prometheus: FakePrometheus, policy) -> None:
        self.stage = stage
        self.prometheus = prometheus
        self.view = ClusterView(policy)
        self.feed = self.view.feed(stage.connection)
        self.metrics = ReclaimMetrics()
        logs = Logs(LineWriter(os.open(os.devnull, os.O_WRONLY)), log_format=LogFormat.JSON)
        context = stage.context(self.view, logs, metrics=self.metrics, why_stale=self.feed.readiness)
        self.idle = IdleGpus(
            context, IdleEvictions(context, OwnerLookup(stage.connection)), IdleMetrics(self.metrics.registry)
        )

    @asynccontextmanager
    async def running(self):
        """Look until the end of the block."""
        tasks = [asyncio.create_task(self.feed.run())]
        await asyncio.sleep(1)
        tasks.append(asyncio.create_task(self.idle.run()))
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    def annotations(self, name: str, *, namespace: str = "team-a") -> dict[str, str]:
        """The annotations of a pod."""
        return self.stage.api.objects[PODS][f"{namespace}/{name}"]["metadata"].get("annotations") or {}

    def is_marked(self, name: str) -> bool:
        return SINCE in self.annotations(name)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@asynccontextmanager
async def watching(stage: Stage, *actions: str, **more):
    """Have idle pods looked for, with terms of ten minutes and readings each minute."""
    async with FakePrometheus(stage.now).serving() as prometheus:
        of = rules(*actions, **{"for_": 600, "share_percent": 100} | more)
        of = replace(of, source=replace(of.source, url=prometheus.url, interval_seconds=60))
        policy = make.policy(make.team(guaranteed=0), make.team("team-b"), idle=of)
        async with Watching(stage, prometheus, policy).running() as found:
            yield found
