"""Which other products a cluster has, over real HTTP."""

import pytest

from tests.cluster.support.fake_api import Answer, FakeApi
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import connect
from webhook.cluster.api.errors import ApiError
from webhook.cluster.reads.other_products import read_other_products

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@pytest.fixture
async def api():
    async with FakeApi().serving() as server:
        yield server


async def read(api, tmp_path, *groups):
    api.groups.extend(groups)
    async with await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as connection:
        return await read_other_products(connection)


async def test_nothing_is_found_where_nothing_is(api, tmp_path):
    assert (await read(api, tmp_path, "apps")).text == "no other queue or scheduler found"


async def test_products_are_found_by_groups_and_by_webhooks(api, tmp_path):
    api.put(WEBHOOKS, "gpu-sharing", webhooks=[{"name": "vgpu.hami.io"}])
    api.put(WEBHOOKS, "empty")
    found = await read(api, tmp_path, "apps", "kueue.x-k8s.io")
    assert found.text == "Kueue and HAMi are installed: docs/coexistence.md#kueue, docs/coexistence.md#hami"


async def test_without_the_right_to_list_webhooks_it_says_what_does_not_show(api, tmp_path):
    api.faults[f"list {WEBHOOKS}"].append(Answer(403))
    found = await read(api, tmp_path, "scheduling.volcano.sh")
    assert found.text == (
        "Volcano is installed: docs/coexistence.md#volcano; HAMi and YuniKorn only show with the right to list "
        "mutatingwebhookconfigurations"
    )


async def test_another_failure_is_an_error(api, tmp_path):
    api.faults[f"list {WEBHOOKS}"].append(Answer(500))
    with pytest.raises(ApiError):
        await read(api, tmp_path, "apps")
