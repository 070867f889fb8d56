"""A cluster is followed while its status is watched."""

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import until, write_kubeconfig
from webhook.cli.world_source import follow
from webhook.core.model.policy import Policy


async def test_a_followed_world_goes_on_and_is_not_stale(tmp_path):
    async with FakeApi().serving() as api:
        api.put("/api/v1/nodes", "n0", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
        async with follow(write_kubeconfig(tmp_path / "kubeconfig", api.url), Policy()) as followed:
            assert (len(followed.world.fleet), followed.why_stale()) == (1, None)
            api.put("/api/v1/nodes", "n1", spec={}, status={"allocatable": {"nvidia.com/gpu": "8"}})
            await until(lambda: len(followed.world.fleet) == 2)
