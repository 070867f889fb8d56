"""`fairgate status --watch` follows a cluster."""

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import until, write_kubeconfig
from webhook.cli.world_source import watch_world
from webhook.core.model.policy import Policy


async def test_a_watched_world_is_updated_and_not_stale(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        async with watch_world(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as watched:
            assert (len(watched.world.fleet), watched.why_stale()) == (1, None)
            api.put("/api/v1/nodes", "n1", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
            await until(lambda: len(watched.world.fleet) == 2)
