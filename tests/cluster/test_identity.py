"""Who we are to the API server, and which namespace is ours."""

import pytest
import yaml

from tests.cluster.book import write_kubeconfig
from tests.cluster.fake_api import Answer, Body
from webhook.cluster.errors import ClusterError
from webhook.cluster.identity import own_namespace, own_username


async def test_the_api_server_says_as_whom_it_knows_us(api, connection):
    api.faults["post"].append(Body(b'{"status":{"userInfo":{"username":"system:serviceaccount:x:y","groups":["g"]}}}'))
    assert await own_username(connection) == "system:serviceaccount:x:y"
    assert api.asked[-1].path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.mark.parametrize("fault", [Answer(403), Body(b"{}"), Body(b"<html>")])
async def test_an_answer_that_names_nobody_is_an_error(api, connection, fault):
    api.faults["post"].append(fault)
    with pytest.raises(ClusterError, match="cannot create selfsubjectreviews"):
        await own_username(connection)


async def test_a_pods_namespace_is_ours(tmp_path):
    (tmp_path / "namespace").write_text("fairgate-system\n")
    assert await own_namespace(None, service_account=tmp_path) == "fairgate-system"


async def test_with_a_kubeconfig_it_is_its_contexts_or_default(tmp_path):
    file = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    assert await own_namespace(file) == "default"
    document = yaml.safe_load(file.read_text())
    document["contexts"][0]["context"]["namespace"] = "infra"
    file.write_text(yaml.safe_dump(document))
    assert await own_namespace(file) == "infra"
    assert await own_namespace(None, service_account=tmp_path / "none") == "default"
