"""The default namespace of an installation's shared objects."""

import pytest
import yaml

from tests.cluster.support.stores import write_kubeconfig
from webhook.cluster.api.client import ClusterError
from webhook.cluster.api.credentials import load
from webhook.cluster.api.requests import own_namespace
from webhook.files import in_context


@pytest.mark.parametrize(("named", "want"), [("gpu", "gpu"), ("", "default"), (None, "default")])
async def test_the_namespace_of_the_kubeconfigs_context(tmp_path, named, want):
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    document = yaml.safe_load(path.read_text())
    if named is not None:
        document["contexts"][0]["context"]["namespace"] = named
    path.write_text(yaml.safe_dump(document))
    assert await own_namespace(path) == want


async def test_the_namespace_of_the_service_account(tmp_path):
    (tmp_path / "namespace").write_text("fairgate-system\n")
    assert await own_namespace(None, service_account=tmp_path) == "fairgate-system"


@pytest.mark.parametrize("text", ["", "contexts: []", "contexts: {a: b}", "contexts: [", "- a"])
async def test_a_kubeconfig_without_a_namespace_is_an_error(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError, match="cannot read a namespace from"):
        await own_namespace(path)


async def test_outside_of_a_pod_the_flag_is_needed(tmp_path):
    with pytest.raises(ClusterError, match="set --namespace"):
        await own_namespace(None, service_account=tmp_path)


async def test_a_context_chooses_server_user_and_namespace(tmp_path):
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    document = yaml.safe_load(path.read_text())
    document["clusters"].append({"name": "other", "cluster": {"server": "http://127.0.0.1:2"}})
    document["users"].append({"name": "eve", "user": {"token": "t", "as": "ann"}})
    document["contexts"].append(
        {"name": "second", "context": {"cluster": "other", "user": "eve", "namespace": "research"}}
    )
    path.write_text(yaml.safe_dump(document))
    chosen = in_context(path, "second")
    assert await own_namespace(chosen) == "research"
    loaded = await load(chosen, service_account=tmp_path)
    assert (loaded.server, loaded.impersonation) == ("http://127.0.0.1:2", (("Impersonate-User", "ann"),))
    with pytest.raises(ClusterError, match="third"):
        await load(in_context(path, "third"), service_account=tmp_path)
