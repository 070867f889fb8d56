"""Which other products a cluster has, over real HTTP."""

import pytest

from tests.cluster.support.fake_api import Answer
from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import ApiError, connect
from webhook.cluster.reads.installation import read_other_products

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


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
    assert found.text == "Kueue and HAMi are installed: docs/tasks/coexistence.md#kueue, docs/tasks/coexistence.md#hami"


async def test_without_a_right_it_says_that_there_may_be_more(api, tmp_path):
    api.faults[f"list {WEBHOOKS}"].append(Answer(403))
    found = await read(api, tmp_path, "scheduling.volcano.sh")
    more = "; there may be more: you lack the right to "
    assert found.text == (
        f"Volcano is installed: docs/tasks/coexistence.md#volcano{more}list mutatingwebhookconfigurations"
    )
    api.faults["get /apis"].append(Answer(403))
    assert (await read(api, tmp_path)).text == f"no other queue or scheduler found{more}get apis"


async def test_another_failure_is_an_error(api, tmp_path):
    api.faults[f"list {WEBHOOKS}"].append(Answer(500))
    with pytest.raises(ApiError):
        await read(api, tmp_path, "apps")
