"""`fairgate status --watch` follows a cluster."""

import time

from tests.cli import sample_world
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import until, write_kubeconfig
from webhook.cli.world_source import watch_world
from webhook.core.life.pod_life import Stage
from webhook.core.model.policy import Policy
from webhook.kube.reclaim.holds import rfc3339


async def test_a_watched_world_is_updated_and_not_stale(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            assert (len(watched.world.fleet), watched.why_stale()) == (1, None)
            api.put("/api/v1/nodes", "n1", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
            await until(lambda: len(watched.world.fleet) == 2)


async def test_a_pod_that_ends_in_time_is_not_overdue_in_a_watched_world(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        going = sample_world.pod("going", namespace="vision", gpus=4, node="n0")
        ends = {"deletionTimestamp": rfc3339(int(time.time()) + 600), "deletionGracePeriodSeconds": 600}
        api.put("/api/v1/pods", "going", namespace="vision", metadata=going["metadata"] | ends, spec=going["spec"])
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            [pod] = watched.world.pods()
            assert watched.world.stages.of(pod.uid) is Stage.ENDING
